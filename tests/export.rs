//! Damaged trace files, in every format: each exporter writes what can be read.

use std::path::Path;

use gpushim_core::export::{Format, Measure, metrics, write};
use gpushim_core::recording::{Recording, open};
use gpushim_core::trace::Trace;
use proptest::prelude::*;

#[path = "../fuzz/seeds.rs"]
mod seeds;

const FORMATS: [Format; 8] = [
    Format::MemoryViz,
    Format::Perfetto,
    Format::Firefox,
    Format::Speedscope,
    Format::Pprof,
    Format::Folded,
    Format::Rmm,
    Format::Json,
];

fn write_all(content: &[u8]) -> bool {
    let Ok(trace) = Trace::from_bytes(Path::new("x.trace"), content) else {
        return false;
    };
    let recordings: [Box<dyn Recording>; 1] = [Box::new(trace)];
    for format in FORMATS {
        let mut out = Vec::new();
        write(format, &recordings, Measure::Peak, &mut out).unwrap();
    }
    metrics(&recordings);
    let dir = tempfile::tempdir().unwrap();
    gpushim_core::export::parquet(&recordings, dir.path(), "job").unwrap();
    true
}

#[test]
fn sound_and_damaged_files_are_written() {
    for (name, content) in seeds::sound() {
        assert!(write_all(&content), "{name}");
    }
    for (_, content) in seeds::damaged() {
        write_all(&content);
    }
}

#[test]
fn what_is_written_of_a_trace_can_be_read_as_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in seeds::sound() {
        let trace = Trace::from_bytes(Path::new("x.trace"), &content).unwrap();
        let recordings: [Box<dyn Recording>; 1] = [Box::new(trace)];
        let mut out = Vec::new();
        write(Format::MemoryViz, &recordings, Measure::Peak, &mut out).unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, out).unwrap();
        open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn any_damage_is_survived(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        static SEEDS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
        let seeds = SEEDS.get_or_init(|| seeds::sound().into_iter().map(|(_, content)| content).collect());
        let mut content = which.get(seeds).clone();
        for (at, byte) in changes {
            let at = at.index(content.len());
            content[at] = byte;
        }
        if let Some(cut) = cut {
            content.truncate(cut.index(content.len()));
        }
        write_all(&content);
    }
}

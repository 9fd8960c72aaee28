//! Damaged trace files, in every format: each exporter writes the readable part.

use std::path::Path;
use std::process::Command;

use gpushim_command::export::{Format, Measure, write};
use gpushim_command::metrics::metrics;
use gpushim_command::recording::{Recording, open};
use gpushim_trace::Trace;
use proptest::prelude::*;

#[allow(dead_code, reason = "the seeds want part of it")]
#[path = "../fuzz/read_all.rs"]
mod read_all;
#[path = "../fuzz/seeds.rs"]
mod seeds;

const FORMATS: [Format; 7] = [
    Format::MemoryViz,
    Format::Perfetto,
    Format::Firefox,
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
    gpushim_command::export::parquet(&recordings, dir.path(), None).unwrap();
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

/// Exit code and standard error of the command.
fn gpushim(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushim"));
    let output = command
        .args(args)
        .current_dir(dir)
        .env_remove("GPUSHIM_TRACE")
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn the_command_says_what_it_could_not_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let sound = seeds::sound();
    let (_, content) = sound.iter().find(|(name, _)| *name != "empty").unwrap();
    std::fs::write(dir.join("a.trace"), content).unwrap();
    std::fs::write(dir.join("b.trace"), b"nothing of ours").unwrap();
    let fine = gpushim(dir, &["export", "--to", "json", "-o", "a.json", "a.trace"]);
    assert_eq!(fine, (Some(0), String::new()));
    assert!(dir.join("a.json").exists());
    // The possible exports are made, and the failures are reported.
    let mut told = String::new();
    for args in [
        "export --to json -o b.json b.trace a.trace",
        "export --to json -o no/such a.trace",
        "export --to parquet -o lake b.trace a.trace",
        "export --to parquet -o x no",
        "export --to parquet a.trace",
        "export --to rmm -o log a.trace a.trace",
    ] {
        let (code, said) = gpushim(dir, &args.split(' ').collect::<Vec<_>>());
        assert_eq!(code, Some(2), "{said}");
        told += &said;
    }
    insta::assert_snapshot!(told, @r#"
    gpushim: failed to read the trace b.trace: it is not a gpushim trace (its first 8 bytes are not "gpushim\0")
    gpushim: failed to write no/such: entity not found
    gpushim: failed to read the trace b.trace: it is not a gpushim trace (its first 8 bytes are not "gpushim\0")
    gpushim: failed to read the trace no: open it: No such file or directory
    gpushim: failed to write tables: name their folder with -o DIR
    gpushim: failed to write log: write an RMM log of 2 files: such a log is of one process; name one file
    "#);
    assert_eq!(
        std::fs::read(dir.join("a.json")).unwrap(),
        std::fs::read(dir.join("b.json")).unwrap()
    );
    assert!(dir.join("lake/events").is_dir());
    // Where nothing runs there is nothing to say.
    let none = gpushim(&dir.join(".."), &["metrics", "--output", "/dev/null/x"]);
    assert_eq!(none.0, Some(2));
    let fine = gpushim(dir, &["metrics", "-o", "a.prom", "a.trace"]);
    assert_eq!(fine, (Some(0), String::new()));
    let names = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let left = names.filter(|name| name.to_string_lossy().contains("unfinished"));
    assert_eq!(left.count(), 0);
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

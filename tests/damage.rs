//! Thousands of damaged trace files, and the files of fuzzing: the reader returns the readable part
//! of each.
//!
//! `scripts/fuzz` continues from here for any length of time.

use std::path::Path;

use proptest::prelude::*;

#[path = "../fuzz/read_all.rs"]
mod read_all;
#[path = "../fuzz/seeds.rs"]
mod seeds;

use gpushim_trace::layout::{HEADER_BYTES, PartKind, checksum, get_u32, header, part};
use read_all::read_all;

/// Changes in one place of a file: number of the part (the header is one), place in it, change,
/// count.
type Damage = (usize, prop::sample::Index, Change, usize);

#[derive(Clone, Debug)]
enum Change {
    Flip(u8),
    Byte(u8),
    Word(u64),
    Zeros,
    /// Copied from this place of the file.
    Copy(prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (1..=255_u8).prop_map(Change::Flip),
        any::<u8>().prop_map(Change::Byte),
        any::<u64>().prop_map(Change::Word),
        // Numbers at which sums and products go over.
        (0..64_u32, -2..=2_i64)
            .prop_map(|(bit, by)| Change::Word((1_u64 << bit).wrapping_add_signed(by))),
        Just(Change::Zeros),
        any::<prop::sample::Index>().prop_map(Change::Copy),
    ]
}

fn apply(content: &mut [u8], (part, at, change, times): &Damage) {
    let mut places: Vec<_> = seeds::parts(content)
        .into_iter()
        .map(|(_, range)| range)
        .collect();
    places.extend([0..HEADER_BYTES, 0..content.len()]);
    places.retain(|range| !range.is_empty());
    let Some(range) = places.get(part % places.len().max(1)).cloned() else {
        return;
    };
    let length = range.len();
    for time in 0..*times {
        let at = (range.start + at.index(length) + time * 64).min(range.end - 1);
        let end = content.len();
        match change {
            Change::Flip(bits) => content[at] ^= bits,
            Change::Byte(byte) => content[at] = *byte,
            // Numbers in the file are aligned.
            Change::Word(word) => {
                let at = at & !7;
                let end = end.min(at + 8);
                content[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            Change::Zeros => content[at..end.min(at + 512)].fill(0),
            Change::Copy(from) => {
                let from = from.index(end) & !7;
                let count = 64.min(end - from).min(end - at);
                content.copy_within(from..from + count, at);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn any_damage_of_a_packed_file_is_survived(
        damage in prop::collection::vec((any::<prop::sample::Index>(), change(), 1..4_usize), 1..8),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let sound = seeds::sound();
        let (_, attached) = sound.last().unwrap();
        let mut content = seeds::packed(attached);
        for (at, change, times) in damage {
            apply(&mut content, &(1, at, change, times));
        }
        if let Some(cut) = cut {
            content.truncate(cut.index(content.len()));
        }
        // Its first bytes make it a packed file.
        content.splice(..content.len().min(4), [0x28, 0xb5, 0x2f, 0xfd]);
        read_all(&content);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]
    #[test]
    fn any_damage_in_any_part_is_survived(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec(
            (any::<usize>(), any::<prop::sample::Index>(), change(), 1..4_usize),
            1..8,
        ),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        static SEEDS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
        let seeds = SEEDS.get_or_init(|| seeds::sound().into_iter().map(|(_, content)| content).collect());
        let mut content = which.get(seeds).clone();
        for damage in &damage {
            apply(&mut content, damage);
        }
        if let Some(cut) = cut {
            content.truncate(cut.index(content.len()));
        }
        read_all(&content);
    }
}

#[test]
fn sound_files_have_no_problems_and_every_part() {
    for (name, content) in seeds::sound() {
        let trace = read_all(&content).expect(name);
        assert_eq!(trace.problems(), [] as [&str; 0], "{name}");
        assert!(trace.facts().len() >= 3, "{name}");
        assert_eq!(trace.events().count() > 0, name != "empty");
        let kinds: Vec<_> = seeds::parts(&content)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        assert!(kinds.contains(&(PartKind::Ring as u32)), "{name}");
        assert!(content.len() < 64 << 10, "{name} is too long to begin with");
        if name == "full" {
            assert_eq!(kinds.len(), 13, "{name} has every part");
            assert!(trace.spooled() > 100 && trace.spooled() < trace.readable());
            assert_eq!(trace.events().count() as u64, trace.readable());
            assert_eq!(trace.lost(), 0);
            assert!(trace.live().unwrap().blocks.len() == 30);
            assert!(
                trace
                    .events()
                    .any(|record| trace.stack(record.event.stack).count() == 4)
            );
            assert!(
                trace
                    .jit_name(trace.modules()[0].begin + 0x10_0010)
                    .is_some()
            );
        }
    }
}

#[test]
fn damaged_files_are_read_with_problems() {
    for (name, content) in seeds::damaged() {
        let Some(trace) = read_all(&content) else {
            assert!(name.contains("cut-in-header"), "{name}");
            continue;
        };
        let silent = ["zeroed-ring", "torn"]
            .iter()
            .any(|what| name.ends_with(what));
        assert!(silent || !trace.problems().is_empty(), "{name}");
        assert!(trace.events().count() > 0, "{name}");
    }
}

#[test]
fn the_corpus_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/trace");
    let (mut files, mut read, mut bytes) = (0, 0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let content = std::fs::read(entry.unwrap().path()).unwrap();
        files += 1;
        bytes += content.len();
        read += usize::from(read_all(&content).is_some());
    }
    assert!(files >= 10 && read * 2 > files, "{read} of {files}");
    assert!(bytes < 700 << 10, "{bytes} bytes: keep it small");
}

/// A file with these numbers at these places of the directory's entries, and a sum that says it is
/// so.
fn with(mut content: Vec<u8>, numbers: &[(PartKind, usize, u64)]) -> Vec<u8> {
    let directory = get_u32(&content, header::PARTS_OFFSET).unwrap() as usize;
    for (kind, field, number) in numbers {
        let mut entries = (directory..).step_by(part::BYTES);
        let at = entries.find(|at| get_u32(&content, *at) == Some(*kind as u32));
        content[at.unwrap() + field..][..8].copy_from_slice(&number.to_le_bytes());
    }
    let sum = checksum(&content[..HEADER_BYTES]);
    content[header::CHECKSUM..][..8].copy_from_slice(&sum.to_le_bytes());
    content
}

/// A ring that the file cannot hold is neither walked through nor given memory.
#[test]
fn a_ring_as_large_as_numbers_go() {
    let with_and_without_spool = ["full", "wrapped"];
    let sound = seeds::sound();
    let files = sound
        .iter()
        .filter(|(name, _)| with_and_without_spool.contains(name));
    let numbers = [
        (1 << 46, 64, None),
        (1 << 47, 16, None),
        (1 << 47, 16, Some(1 << 46)),
        (1 << 47, 16, Some(8)),
    ];
    let each = files.flat_map(|(_, whole)| numbers.map(|numbers| (whole, numbers)));
    for (whole, (ring, stride, chunks)) in each {
        let mut numbers = vec![
            (PartKind::Ring, part::LENGTH, ring),
            (PartKind::Ring, part::STRIDE, stride),
        ];
        numbers.extend(chunks.map(|chunks| (PartKind::Chunks, part::LENGTH, chunks)));
        let trace = read_all(&with(whole.clone(), &numbers)).unwrap();
        assert!(!trace.problems().is_empty());
    }
}

//! Tables written by the writer's own interface, read back whole and damaged.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::layout::{header, part};
use crate::{BuildId, Writer, WriterOptions, layout};

const NAMES: [&str; 3] = ["libtorch.so", "py::forward:train.py", "step"];

/// A file with something in each part, and the stack ids and module in it.
fn sound(options: &WriterOptions) -> (Vec<u8>, [u32; 2], Module) {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), options).unwrap();
    let [library, function, step] = NAMES.map(|name| writer.intern(name));
    let module = Module {
        begin: 0x7f00_0000_0000,
        end: 0x7f00_0010_0000,
        bias: 0x7f00_0000_0000,
        path: library,
        generation: 3,
        build_id: BuildId::new(&[0xab; 20]),
    };
    assert!(writer.module(&module));
    assert!(writer.jit(0x1000, 32, function));
    let range = StackNode::Range {
        name: step,
        domain: library,
    };
    let root = writer.stack_child(0, range);
    let ids = [
        writer.stack(0, &[3, 2, 1]),
        writer.stack(root, &[0x1010, 1]),
    ];
    assert_eq!(writer.stack(root, &[0x1010, 1]), ids[1]);
    (std::fs::read(writer.path()).unwrap(), ids, module)
}

fn small() -> WriterOptions {
    WriterOptions {
        bytes: 4096,
        ..WriterOptions::default()
    }
}

fn parse(content: &[u8]) -> Trace {
    Trace::from_bytes(Path::new("x.trace"), content).unwrap()
}

/// The content of the parts of the tables, where they are.
fn tables(content: &[u8]) -> std::ops::Range<usize> {
    let at = |kind: PartKind| {
        let mut entries = (0..13).map(|index| header::PARTS_AT + index * part::BYTES);
        let entry = entries.find(|at| layout::get_u32(content, *at) == Some(kind as u32));
        layout::get_u64(content, entry.unwrap() + part::OFFSET).unwrap() as usize
    };
    at(PartKind::Strings)..at(PartKind::Ring)
}

/// Reads all that these parts can give; it must be bounded by the file.
fn exhaust(trace: &Trace, bytes: usize) {
    for id in (0..600).chain([u32::MAX, 1 << 20]) {
        assert!(trace.stack(id).count() <= bytes / 16);
        if let Some(text) = trace.string(id) {
            assert!(text.len() <= 3 * 4096);
        }
    }
    assert!(trace.modules().len() <= bytes / 64);
    trace.jit_name(0x1010);
    trace.cut();
}

#[test]
fn everything_comes_back() {
    for options in [small(), WriterOptions::default()] {
        let (content, [plain, ranged], module) = sound(&options);
        let trace = parse(&content);
        assert_eq!(trace.problems(), [] as [&str; 0]);
        let frames = [3, 2, 1].map(StackNode::Frame);
        assert_eq!(trace.stack(plain).collect::<Vec<_>>(), frames);
        let [frame, outer, range] = trace.stack(ranged).collect::<Vec<_>>()[..] else {
            panic!("three nodes");
        };
        assert_eq!([frame, outer], [0x1010, 1].map(StackNode::Frame));
        let StackNode::Range { name, domain } = range else {
            panic!("a range");
        };
        assert_eq!(trace.string(name).as_deref(), Some(NAMES[2]));
        assert_eq!(trace.string(domain).as_deref(), Some(NAMES[0]));
        assert_eq!(trace.modules(), [module]);
        assert_eq!(trace.string(module.path).as_deref(), Some(NAMES[0]));
        assert_eq!(trace.jit_name(0x101f).as_deref(), Some(NAMES[1]));
        assert_eq!(trace.jit_name(0x1020), None);
        assert_eq!(trace.stack(0).count(), 0);
        assert_eq!(trace.string(0), None);
        assert_eq!(trace.cut(), Cut::default());
    }
}

#[test]
fn what_does_not_fit_is_counted() {
    let options = WriterOptions {
        stack_nodes: 2,
        ..small()
    };
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    let depth: Vec<u64> = (0..2000).collect();
    let id = writer.stack(0, &depth);
    let long = |n: u32| format!("{n}{}", "x".repeat(2000));
    let texts = (0..5).filter(|n| writer.intern(&long(*n)) != 0).count();
    let modules = (0..100)
        .filter(|_| writer.module(&Module::default()))
        .count();
    let names = (0..300).filter(|n| writer.jit(*n, 1, 8)).count();
    let site = |n: u32| Site {
        name: 8,
        file: 8,
        line: n,
    };
    let is_kept = |n: &u32| {
        writer
            .site(&[(*n).into(), 0, 0, 0], || Some(site(*n)))
            .is_some()
    };
    let sites = (0..300).filter(is_kept).count();
    let trace = Trace::open(writer.path()).unwrap();
    // A page is the least that each part has.
    assert_eq!(trace.stack(id).count(), 252);
    assert_eq!((texts, modules, names, sites), (2, 63, 252, 252));
    let cut = Cut {
        strings: 3,
        stacks: 1,
        modules: 37,
        jit: 48,
        sites: 48,
    };
    assert_eq!(trace.cut(), cut);
    assert_eq!(trace.problems(), [] as [&str; 0]);
}

#[test]
fn a_file_without_these_parts_has_none_of_it() {
    let (mut content, [id, _], _) = sound(&small());
    let count = layout::get_u32(&content, header::PARTS_COUNT).unwrap();
    for index in 0..count as usize {
        let at = header::PARTS_AT + index * part::BYTES;
        if layout::get_u32(&content, at).unwrap() >= PartKind::Strings as u32 {
            layout::put(&mut content, at, &99_u32.to_le_bytes());
        }
    }
    let sum = layout::checksum(&content[..layout::HEADER_BYTES]);
    layout::put(&mut content, header::CHECKSUM, &sum.to_le_bytes());
    let trace = parse(&content);
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!(trace.stack(id).count(), 0);
    assert_eq!((trace.string(8), trace.jit_name(0x1000)), (None, None));
    assert_eq!(trace.site(4), None);
    assert_eq!((trace.modules(), trace.cut()), (&[][..], Cut::default()));
}

#[test]
fn longer_entries_of_a_later_version_are_stepped_over() {
    let (content, [id, _], module) = sound(&small());
    // The stacks and modules again at the end of the file, with a word of zeros after each entry.
    let mut wide = content.clone();
    for index in 0..12 {
        let entry = header::PARTS_AT + index * part::BYTES;
        let number = |at: usize| layout::get_u64(&content, entry + at).unwrap() as usize;
        let kind = layout::get_u32(&content, entry).unwrap();
        let kinds = [PartKind::Stacks, PartKind::Modules].map(|kind| kind as u32);
        if !kinds.contains(&kind) {
            continue;
        }
        let (at, length, stride) = (
            number(part::OFFSET),
            number(part::LENGTH),
            number(part::STRIDE),
        );
        let begin = wide.len();
        for old in content[at..at + length].chunks(stride) {
            wide.extend_from_slice(old);
            wide.extend_from_slice(&[0; 8]);
        }
        let values = [begin, wide.len() - begin, stride + 8].map(|value| value as u64);
        for (field, value) in [part::OFFSET, part::LENGTH, part::STRIDE]
            .into_iter()
            .zip(values)
        {
            layout::put(&mut wide, entry + field, &value.to_le_bytes());
        }
    }
    let sum = layout::checksum(&wide[..layout::HEADER_BYTES]);
    layout::put(&mut wide, header::CHECKSUM, &sum.to_le_bytes());
    let trace = parse(&wide);
    assert_eq!(trace.problems(), [] as [&str; 0]);
    let frames = [3, 2, 1].map(StackNode::Frame);
    assert_eq!(trace.stack(id).collect::<Vec<_>>(), frames);
    assert_eq!(trace.modules(), [module]);
}

#[test]
fn damage_is_said() {
    let (mut content, [id, _], _) = sound(&small());
    let trace = parse(&content);
    let part = |kind| trace.parts.get(kind).unwrap().offset as usize;
    let node = part(PartKind::Stacks) + id as usize * stacks::layout::BYTES;
    let module = part(PartKind::Modules) + modules::layout::BYTES;
    content[node + 2] = 1;
    content[module + 8 + 7] = 1;
    let trace = parse(&content);
    assert_eq!(
        trace.problems(),
        [
            "1 records of the modules make no sense: left out",
            "1 nodes of the stacks make no sense: stacks end there"
        ]
    );
    assert_eq!((trace.stack(id).count(), trace.modules().len()), (0, 0));
}

#[test]
fn cut_anywhere_the_rest_is_read() {
    let (content, [id, _], _) = sound(&small());
    let tables = tables(&content);
    let edges = (tables.start..=tables.end).step_by(4096);
    let near = edges.flat_map(|edge| edge - 9..edge + 150);
    for length in (layout::HEADER_BYTES..content.len())
        .step_by(1024)
        .chain(near)
    {
        let trace = parse(&content[..length]);
        exhaust(&trace, length);
        let whole = length >= tables.end;
        let nothing = length <= tables.start;
        assert!(trace.stack(id).count() == 3 || !whole);
        assert!(trace.string(8).is_none() || !nothing);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_damage_is_survived(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60),
        length in 0_usize..=1000,
    ) {
        let (mut content, _, _) = sound(&small());
        let tables = tables(&content);
        for (at, value) in flips {
            // Half of them where there is something: the first bytes of each part.
            let at = at.index(2 * tables.len());
            let at = if at < tables.len() { at } else { at % 4 * 4096 + at / 4 % 256 };
            content[tables.start + at] = value;
        }
        content.truncate(layout::HEADER_BYTES.max(content.len() * length / 1000));
        exhaust(&parse(&content), content.len());
    }
}

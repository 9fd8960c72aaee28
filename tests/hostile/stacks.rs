//! Traces with stacks that no process has.

use std::path::Path;
use std::time::Duration;

use gpushim_trace::{BuildId, Class, Event, Kind, Module, StackNode, Writer, WriterOptions};

use crate::bounded::gpushim;

/// Writes a trace with a module from 0x1000 on and an allocation for each of these stacks.
pub fn traced(path: &Path, module: &Path, build_id: &[u8], stacks: &[&[u64]]) {
    let writer = Writer::create(path, &options(64 << 10)).expect("a trace");
    writer.module(&Module {
        begin: 0x1000,
        end: 0x100_0000,
        bias: 0x1000,
        path: writer.intern(&module.to_string_lossy()),
        generation: 0,
        build_id: BuildId::new(build_id),
    });
    for (number, frames) in (1..).zip(stacks) {
        let stack = writer.stack(0, frames);
        allocated(&writer, number, stack);
    }
}

pub fn options(bytes: u64) -> WriterOptions {
    WriterOptions {
        bytes,
        ..WriterOptions::default()
    }
}

pub fn allocated(writer: &Writer, number: u64, stack: u32) {
    writer.record_alloc(&Event {
        device: 0,
        thread: 7,
        address: number << 20,
        size: 1 << 20,
        stack,
        ..Event::new(Kind::Alloc, Class::Device)
    });
}

/// A chain of calls through all nodes of the file, and an allocation at each.
#[test]
fn chains_of_thousands_of_calls() {
    const NODES: u64 = 40_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.trace");
    let writer = Writer::create(&path, &options(8 << 20)).expect("a trace");
    let mut stack = 0;
    for number in 1..=NODES {
        stack = writer.stack_child(stack, StackNode::Frame(0x1000 + 16 * number));
        allocated(&writer, number, stack);
    }
    drop(writer);
    // An unoptimised run takes 5 to 16 s of a processor: readers look at 1,024 nodes of each of the
    // 40,000 stacks. Without that bound it would be minutes.
    let limit = Duration::from_secs(60);
    for args in [
        &["report", "a.trace"][..],
        &["html", "-o", "out", "a.trace"],
        &["export", "--to", "firefox", "-o", "out", "a.trace"],
        &["export", "--to", "pprof", "-o", "out", "a.trace"],
        &["export", "--to", "folded", "-o", "out", "a.trace"],
        &["peak", "--top", "3", "a.trace"],
    ] {
        let begin = std::time::Instant::now();
        let ran = gpushim(folder.path(), args, 4096, limit);
        println!("{args:?}: {:?}", begin.elapsed());
        assert!(
            matches!(ran.code, Some(0 | 1)),
            "{args:?}: {:.1000}",
            ran.text()
        );
    }
}

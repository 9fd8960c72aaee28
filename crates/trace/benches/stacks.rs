//! Cost of turning a call stack into its id: `cargo bench --bench stacks`.
//!
//! Each run takes a thousand stacks, so that the figure divided by 1000 is without the bench's own
//! cost.

use divan::Bencher;
use gpushim_trace::{StackNode, Writer, WriterOptions};

fn main() {
    divan::main();
}

fn writer(dir: &tempfile::TempDir) -> Writer {
    Writer::create(&dir.path().join("bench.trace"), &WriterOptions::default())
        .expect("a writable temporary directory")
}

/// Returns frames, the innermost first; the outer ones are common to all stacks of a family.
fn stack(family: u64, number: u64, own: usize) -> [u64; FRAMES] {
    std::array::from_fn(|depth| {
        let number = if depth < own { number + 1 } else { 0 };
        0x7f00_0000_0000 + (family << 32) + (number << 16) + depth as u64 * 32
    })
}

const FRAMES: usize = 40;

fn push_1000(
    bencher: Bencher,
    stacks: &[[u64; FRAMES]],
    root: impl Fn(&Writer, usize) -> u32 + Sync,
) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let writer = writer(&dir);
    for (index, stack) in stacks.iter().enumerate() {
        writer.stack(root(&writer, index), stack);
    }
    bencher.bench(|| {
        for (index, stack) in (0..1000).zip(stacks.iter().cycle()) {
            let root = root(&writer, index % stacks.len());
            divan::black_box(writer.stack(root, divan::black_box(stack)));
        }
    });
}

/// Pushes one stack again and again.
#[divan::bench(threads = [1, 2])]
fn same(bencher: Bencher) {
    push_1000(bencher, &[stack(0, 0, 3)], |_, _| 0);
}

/// The innermost 3 of 40 frames differ from the last time: 64 such stacks.
#[divan::bench(threads = [1, 2])]
fn three_differ(bencher: Bencher) {
    let stacks: Vec<_> = (0..64).map(|number| stack(0, number, 3)).collect();
    push_1000(bencher, &stacks, |_, _| 0);
}

/// All 40 frames differ from the last time, and are known: 64 such stacks.
#[divan::bench(threads = [1, 2])]
fn all_differ(bencher: Bencher) {
    let stacks: Vec<_> = (0..64).map(|family| stack(family, 0, 3)).collect();
    push_1000(bencher, &stacks, |_, _| 0);
}

/// All 40 frames differ: 1,000 such stacks, 40,000 nodes, more than the caches near a core hold.
#[divan::bench(threads = [1, 2])]
fn all_differ_of_many(bencher: Bencher) {
    let stacks: Vec<_> = (0..1000).map(|family| stack(family, 0, 3)).collect();
    push_1000(bencher, &stacks, |_, _| 0);
}

/// All 40 frames differ: 64 such stacks, added breadth first. No node lies next to its parent, so
/// each frame is looked up in the index.
#[divan::bench(threads = [1, 2])]
fn all_differ_scattered(bencher: Bencher) {
    let stacks: Vec<_> = (0..64).map(|family| stack(family, 0, 3)).collect();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let writer = writer(&dir);
    for depth in 1..=FRAMES {
        for stack in &stacks {
            writer.stack(0, &stack[FRAMES - depth..]);
        }
    }
    bencher.bench(|| {
        for (_, stack) in (0..1000).zip(stacks.iter().cycle()) {
            divan::black_box(writer.stack(0, divan::black_box(stack)));
        }
    });
}

/// One stack below another range each time: looked up from the outermost frame on.
#[divan::bench(threads = [1, 2])]
fn below_other_ranges(bencher: Bencher) {
    let stacks = [stack(0, 0, 3); 8];
    push_1000(bencher, &stacks, |writer, index| {
        let name = index as u32 + 8;
        writer.stack_child(0, StackNode::Range { name, domain: 0 })
    });
}

/// The innermost 3 of 40 frames were never seen: 3,000 nodes are added to an empty part.
#[divan::bench(sample_count = 50, sample_size = 1)]
fn three_new(bencher: Bencher) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stacks: Vec<_> = (0..1000).map(|number| stack(0, number, 3)).collect();
    bencher.with_inputs(|| writer(&dir)).bench_refs(|writer| {
        for stack in &stacks {
            divan::black_box(writer.stack(0, stack));
        }
    });
}

/// A text of 24 bytes that is known.
#[divan::bench(threads = [1, 2])]
fn intern(bencher: Bencher) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let writer = writer(&dir);
    bencher.bench(|| {
        for _ in 0..1000 {
            divan::black_box(writer.intern(divan::black_box("Optimizer.step#AdamW.step")));
        }
    });
}

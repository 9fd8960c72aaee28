use gpushim_trace::{Class, SITE, Site, Trace, Writer, WriterOptions};

use super::*;
use crate::CallSite;

const TORCH: &str = "/usr/lib/python3/site-packages/torch/autograd/__init__.py";
const NATIVE: u64 = 0x7f00_0000_1000;

/// Writes blocks of threads, each made by calls: functions of a program or of autograd, the
/// innermost first, or `native`.
fn record(blocks: &[(u32, &[&str])]) -> (tempfile::TempDir, Started) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.trace");
    let writer = Writer::create(&path, &WriterOptions::default()).expect("a trace");
    let frame = |name: &str| {
        let file = match name {
            "native" => return NATIVE,
            "backward" | "grad" | "_make_grads" => TORCH,
            _ => "/home/me/train.py",
        };
        let site = Site {
            name: writer.intern(name),
            file: writer.intern(file),
            line: 7,
        };
        let key = name
            .bytes()
            .fold(7, |key, letter| key * 31 + u64::from(letter));
        SITE | u64::from(writer.site(&[key, 0, 0, 0], || Some(site)).expect("room"))
    };
    for (address, (thread, calls)) in (1_u64..).zip(blocks) {
        let frames: Vec<u64> = calls.iter().map(|name| frame(name)).collect();
        writer.record_alloc(&Event {
            device: 0,
            thread: *thread,
            address: address << 20,
            size: 512,
            stack: writer.stack(0, &frames),
            ..Event::new(Kind::TensorAlloc, Class::Tensor)
        });
    }
    let trace = Trace::open(&path).expect("a trace");
    (folder, Started::new(Box::new(trace)))
}

/// Returns the user's function behind each block.
fn places(recording: &Started) -> Vec<Option<String>> {
    let names = &mut *Recording::names(recording);
    let stacks = Recording::events(recording).map(|record| record.event.stack);
    let site = |stack| {
        CallSite::of(names, stack)
            .place()
            .map(|place| place.name.clone())
    };
    stacks.map(site).collect()
}

fn of(names: &[Option<&str>]) -> Vec<Option<String>> {
    names.iter().map(|name| name.map(String::from)).collect()
}

#[test]
fn gradients_belong_to_the_line_that_called_backward() {
    let (_folder, recording) = record(&[
        (1, &["native", "forward", "step"]),
        (2, &["native"]),
        (1, &["native", "_make_grads", "backward", "step"]),
        (2, &["native"]),
        (2, &["native"]),
        (1, &["native", "update"]),
        (2, &["native"]),
    ]);
    let step = Some("step");
    let expected = [
        Some("forward"),
        None,
        step,
        step,
        step,
        Some("update"),
        None,
    ];
    assert_eq!(places(&recording), of(&expected));
    let stacks: Vec<u32> = Recording::events(&recording)
        .map(|one| one.event.stack)
        .collect();
    assert_eq!(stacks[3], stacks[4]);
    assert_eq!(stacks[1], stacks[6]);
    // Each pass over the events numbers them alike.
    let again: Vec<u32> = Recording::events(&recording)
        .map(|one| one.event.stack)
        .collect();
    assert_eq!(stacks, again);
    let ways = [2, 3].map(|at| Recording::way(&recording, stacks[at]));
    let depths = ways.clone().map(|way| way.calls.len());
    assert_eq!((depths, recording.backward(&ways[0])), ([3, 2], Some(2)));
    assert_eq!(ways.map(|way| way.has_lines), [true, false]);
    assert_ne!(Recording::frames(&recording, stacks[3]), 0);
    assert_ne!(
        Recording::frames(&recording, stacks[3]),
        Recording::frames(&recording, stacks[1])
    );
}

#[test]
fn a_pass_inside_a_pass_belongs_to_its_own_line() {
    let (_folder, recording) = record(&[
        (1, &["native", "_make_grads", "backward", "step"]),
        (2, &["native", "checkpoint"]),
        (2, &["native", "_make_grads", "grad", "checkpoint"]),
        // The thread that started it waits, so this is work of another call.
        (2, &["native"]),
        (3, &["native"]),
    ]);
    let checkpoint = Some("checkpoint");
    let expected = [
        Some("step"),
        checkpoint,
        checkpoint,
        Some("step"),
        checkpoint,
    ];
    assert_eq!(places(&recording), of(&expected));
}

#[test]
fn calls_of_a_function_to_itself_are_one() {
    let (_folder, recording) = record(&[
        (1, &["native", "trial", "search", "main"]),
        (
            1,
            &["native", "trial", "search", "search", "search", "main"],
        ),
        (1, &["native", "search", "trial", "search", "main"]),
    ]);
    let stacks = Recording::events(&recording).map(|one| one.event.stack);
    let numbers: Vec<u64> = stacks
        .map(|stack| Recording::way(&recording, stack).number())
        .collect();
    assert_eq!(numbers[0], numbers[1]);
    assert_ne!(numbers[0], numbers[2]);
}

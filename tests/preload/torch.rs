//! Tensors announced by PyTorch, on libraries that imitate PyTorch's.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::process::Command;

use gpushim_command::ledger::Focus;
use gpushim_command::replay::{Policy, ReplayDevice};
use gpushim_command::requests::{Op, Requests};
use gpushim_trace::{Class, Event, Kind, Layer};

use crate::replay::open;
use crate::support::{Outcome, Run, library, program};

fn run() -> Run {
    run_of("torch")
}

fn run_of(name: &str) -> Run {
    let c10 = library("lib_c10", &[]);
    // By its path, without a soname: it is found again.
    let cuda = library("lib_c10_cuda", &[c10.as_os_str()]);
    Run::new(program(name)).arg(cuda)
}

#[test]
fn tensors_are_seen_and_passed_on_with_the_same_arguments() {
    let (native, shim) = run().both();
    // Two rounds of two generations: three announcements and a failure each.
    assert_eq!(native.stdout.lines().count(), 16, "{}", native.stdout);
    let trace = shim.trace();
    let view = |kind| -> Vec<_> {
        let values = |e: &Event| (e.device, e.address, e.size, e.extra[0], e.extra[1]);
        trace
            .class(kind, Class::Tensor)
            .iter()
            .map(values)
            .collect()
    };
    let new =
        |size: u64, allocated: u64| (3, 0x7f00_0000_2000, size << 32, allocated << 32, 5 << 32);
    let old = |allocated: u64| (3, 0x7f00_0000_1000, 4096, allocated, 6000);
    // Tensors in host memory (the 77 bytes) are not device memory.
    assert_eq!(
        view(Kind::TensorAlloc),
        [new(3, 4), old(5000), new(3, 4), old(5000)]
    );
    assert_eq!(
        view(Kind::TensorFree),
        [new(3, 1), old(904), new(3, 1), old(904)]
    );
    let failed = [
        (3, 0, 6 << 40, 1 << 32, 5 << 32),
        (3, 0, 5 << 40, 904, 6000),
    ];
    assert_eq!(view(Kind::TensorOutOfMemory), [failed, failed].concat());
    // This library has no function that returns the current stream.
    assert!(trace.events.iter().all(|event| event.stream == 0));
}

#[test]
fn the_recording_of_tensors_can_be_turned_off() {
    let (_, shim) = run().env("GPUSHIM_TENSORS", "off").both();
    assert_eq!(shim.files(), [] as [&str; 0], "a trace without an event");
}

#[test]
fn a_function_of_pytorch_is_left_as_by_an_exception() {
    let (native, shim) = run_of("torch_leaves").both();
    assert_eq!(native.stdout.matches("left with 99\n").count(), 4);
    let trace = shim.trace();
    assert_eq!(trace.class(Kind::TensorAlloc, Class::Tensor).len(), 2);
    assert_eq!(trace.class(Kind::TensorOutOfMemory, Class::Tensor).len(), 2);
}

/// A program with tensors of three streams and two threads, on a library built with these extra
/// arguments to gcc.
fn streams(more: &[&str]) -> Outcome {
    let arguments = [&["-l:libcudart.so.13"], more].concat();
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let torch = library("libc10_cuda", &arguments);
    Run::new(program("torch_streams")).arg(torch).both().1
}

/// Number of tensors made for each stream, by its handle. `None` if the stream is not known.
fn made(outcome: &Outcome) -> HashMap<Option<u64>, u64> {
    let trace = open(outcome);
    let mut made = HashMap::new();
    for record in trace.events() {
        if record.event.kind == Kind::TensorAlloc {
            *made.entry(trace.stream(&record)).or_default() += 1;
        }
    }
    made
}

#[test]
fn tensors_are_of_the_current_stream_of_their_thread() {
    let outcome = streams(&[]);
    let note = |name: &str, stream: u64| outcome.note(&format!("{name}{stream}"));
    let expected = (0..3).map(|stream| (Some(note("handle", stream)), note("made", stream)));
    assert_eq!(made(&outcome), expected.collect());
    let side = note("handle", 2);
    assert_ne!(side, 0);
    // Their allocations and, though a free names no stream, their frees.
    let path = outcome
        .files()
        .into_iter()
        .find(|name| name.ends_with(".trace"));
    let listed = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args([
            "events",
            "--stream",
            &format!("{side:#x}"),
            "--format",
            "json",
        ])
        .arg(outcome.folder().join(path.expect("a trace")))
        .output()
        .expect("gpushim runs");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let count = |kind: &str| listed.matches(&format!("\"kind\":\"{kind}\"")).count() as u64;
    assert_eq!(count("tensor-alloc"), note("made", 2), "{listed}");
    assert_eq!(count("tensor-free"), note("made", 2));
}

#[test]
fn tensors_of_a_library_without_streams_are_of_none() {
    let outcome = streams(&["-DWITHOUT_STREAMS"]);
    let all: u64 = (0..3)
        .map(|stream| outcome.note(&format!("made{stream}")))
        .sum();
    assert_eq!(made(&outcome), HashMap::from([(None, all)]));
}

/// Memory held by the allocator after each tensor was made: as it reported, and by a replay.
fn held(outcome: &Outcome) -> [Vec<u64>; 2] {
    let trace = open(outcome);
    let tensors = trace
        .events()
        .filter(|record| record.event.kind == Kind::TensorAlloc);
    let said = tensors.map(|record| record.event.extra[1]).collect();
    let focus = Focus {
        layer: Layer::Tensor,
        device: None,
    };
    let requests = Requests::of(&*trace, focus).remove(&0).expect("one device");
    let mut torch = Policy::Torch.build(&ReplayDevice::default(), &requests);
    let mut replayed = Vec::new();
    for request in requests.iter() {
        match request.op {
            Op::Allocate => {
                torch.allocate(&request).expect("memory");
                replayed.push(torch.reserved());
            }
            Op::Free => torch.free(&request),
            Op::Done | Op::Trim => panic!("not of this program: {request:?}"),
        }
    }
    [said, replayed]
}

#[test]
fn a_replay_holds_what_the_allocator_held_for_each_stream() {
    let [said, replayed] = held(&streams(&[]));
    assert!(said.len() > 300, "{}", said.len());
    assert_eq!(said, replayed);
    // Without the streams a tensor gets memory that another stream has freed.
    let [said, replayed] = held(&streams(&["-DWITHOUT_STREAMS"]));
    assert!(replayed.last() < said.last(), "{replayed:?}");
}

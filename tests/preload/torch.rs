//! Tensors that PyTorch announces, on libraries that play PyTorch's.

use gpushim_trace::{Class, Event, Kind};

use crate::support::{Run, library, program};

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

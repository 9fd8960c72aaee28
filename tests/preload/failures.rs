//! The fifteen ways in which such shims have failed (design.md), a test each.

use std::ffi::OsStr;
use std::process::Command;

use gpushim_trace::{Class, Event, Kind};

use crate::support::{Outcome, Run, library, place, program, program_with, sum};

/// The blocks that a program asked for through the pool's door.
fn device_events(outcome: &Outcome, kind: Kind) -> Vec<Event> {
    outcome.trace().class(kind, Class::Device)
}

#[test]
fn failure_01_a_name_prefix_catches_foreign_functions() {
    let names = library("lib_cudnn", &[]);
    let (_, shim) = Run::new(program("prefix")).arg(names).both();
    // Both of its own calls, and none of the functions that only look like the driver's.
    assert_eq!(device_events(&shim, Kind::Alloc).len(), 1);
    assert_eq!(device_events(&shim, Kind::Free).len(), 1);
}

/// A program between a library that interposes a function and the library that defines it.
fn layered() -> std::path::PathBuf {
    let base = library("lib_base", &[]);
    let layer = library("lib_layer", &[]);
    let order = [
        OsStr::new("-Wl,--no-as-needed"),
        layer.as_os_str(),
        base.as_os_str(),
    ];
    program_with("next", &order)
}

#[test]
fn failure_02_rtld_next_loses_its_caller() {
    let (_, shim) = Run::new(layered()).both();
    assert_eq!(
        shim.stdout.matches("layered: 1001\n").count(),
        4,
        "{}",
        shim.stdout
    );
}

#[test]
fn failure_03_rtld_next_answers_null_when_asked_again() {
    let (_, shim) = Run::new(layered()).both();
    assert!(
        shim.stdout.contains("puts: found same same same same"),
        "{}",
        shim.stdout
    );
    assert!(
        shim.stdout
            .contains("absent_everywhere: NULL same same same same"),
        "{}",
        shim.stdout
    );
    assert!(!shim.stdout.contains("DIFFERS"), "{}", shim.stdout);
}

#[test]
fn failure_04_the_newest_variant_for_every_version() {
    let (native, shim) = Run::new(program("variants")).both();
    assert!(
        native.note("answered") > 1000,
        "the stand-in answered {} times",
        native.note("answered")
    );
    assert_eq!(native.note("substituted"), 0);
    // Not by leaving everything to the driver.
    assert!(
        shim.note("substituted") > 200,
        "the shim stood in for {}",
        shim.note("substituted")
    );
}

#[test]
fn failure_05_a_wrong_variant_of_context_creation() {
    let (_, shim) = Run::new(program("abi")).arg("contexts").both();
    for variant in ["cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"] {
        assert!(
            shim.stdout.contains(variant),
            "{variant} was not tried: {}",
            shim.stdout
        );
    }
    assert_eq!(
        shim.stdout.matches("  gave 0\n").count(),
        device_events(&shim, Kind::Alloc).len()
    );
}

#[test]
fn failure_06_an_abi_of_cuda_13_under_an_old_name() {
    let (_, shim) = Run::new(program("abi")).arg("changed").both();
    for line in [
        "cuCtxSynchronize 12000: 0 cuCtxSynchronize\n  gave 0\n  the other context is done: 0\n",
        "cuCtxSynchronize 13000: 0 cuCtxSynchronize_v2\n  gave 0\n  the other context is done: 1\n",
        "cuGraphAddDependencies 13000: 0 cuGraphAddDependencies_v2\n  gave 0\n",
    ] {
        assert!(
            shim.stdout.contains(line),
            "{line} is not in {}",
            shim.stdout
        );
    }
}

fn seen_through(way: &str) {
    let (_, shim) = Run::new(program("proc_address")).arg(way).both();
    let (allocated, freed) = (
        device_events(&shim, Kind::Alloc),
        device_events(&shim, Kind::Free),
    );
    assert_eq!(
        (allocated.len(), freed.len()),
        (1, 1),
        "the way {way} is not seen"
    );
    assert_eq!((allocated[0].size, freed[0].size), (123_456, 123_456));
    assert_eq!(allocated[0].address, freed[0].address);
}

#[test]
fn failure_07_the_second_form_of_get_proc_address_is_not_hooked() {
    seen_through("v2");
    seen_through("v1");
}

#[test]
fn failure_08_get_proc_address_asked_for_through_itself() {
    for way in ["itself", "v1-by-v1", "v1-by-v2", "v2-by-v1"] {
        seen_through(way);
    }
}

#[test]
fn failure_09_host_memory_by_mem_create_is_taken_for_device_memory() {
    // Device memory beyond this is refused: host memory of the same size is not.
    let run = Run::new(program("host_location"));
    let (_, shim) = run.both();
    let trace = shim.trace();
    let on_host = shim
        .notes("made")
        .iter()
        .filter(|words| words[0] == "host")
        .count();
    assert!(
        on_host > 0,
        "the stand-in made no host memory: {}",
        shim.stdout
    );
    assert_eq!(trace.count(Kind::Alloc, Class::Host), on_host);
    assert_eq!(trace.count(Kind::Free, Class::Host), on_host);
    assert_eq!(trace.count(Kind::Alloc, Class::Vmm), 1);
    let limited = run.env("GPUSHIM_LIMIT", "32M").shim();
    assert_eq!(limited.notes("made").len(), on_host, "{}", limited.stdout);
    assert!(limited.stdout.contains("device: 2\n"), "{}", limited.stdout);
}

#[test]
fn failure_10_memory_info_without_a_place_for_the_answer() {
    let run = Run::new(program("mem_info"));
    run.both();
    let limited = run.env("GPUSHIM_LIMIT", "100M").shim();
    assert_eq!(limited.code, 0);
    let total = (100 << 20).to_string();
    assert!(
        limited.stdout.lines().all(|line| line.ends_with(&total)),
        "{}",
        limited.stdout
    );
}

#[test]
fn failure_11_a_free_of_what_the_shim_never_saw_is_refused() {
    // Frees that bypass the shim reach the driver, which knows whole allocations only.
    let (_, shim) = Run::new(program("unseen"))
        .may("double free")
        .env("GPUSHIM_POLICY", "blocks")
        .both();
    assert_eq!(
        shim.notes("true"),
        [["libcuda.so.1,", "usual", "libgpushim.so"]]
    );
    assert_eq!(
        shim.stdout.matches("free of unseen: 0\n").count(),
        4,
        "{}",
        shim.stdout
    );
    assert!(shim.stdout.contains("really freed: 1\n"), "{}", shim.stdout);
}

#[test]
fn failure_12_an_asynchronous_free_is_charged_to_the_current_device() {
    let (_, shim) = Run::new(program("other_device"))
        .env("STANDIN_DEVICES", "2")
        .both();
    let trace = shim.trace();
    for (word, class) in [("sync", Class::Device), ("async", Class::PoolAsync)] {
        let notes = shim.notes(word);
        assert_eq!(notes.len(), 2);
        for note in notes {
            let (device, address): (u8, u64) = (note[0].parse().unwrap(), note[1].parse().unwrap());
            for kind in [Kind::Alloc, Kind::Free] {
                let events = trace.class(kind, class);
                let events: Vec<_> = events
                    .iter()
                    .filter(|event| event.address == address)
                    .collect();
                assert_eq!(events.len(), 1, "{kind:?} of {word} {device}");
                assert_eq!(events[0].device, device, "{kind:?} of {word} {device}");
                assert_eq!(
                    events[0].size,
                    trace.class(Kind::Alloc, class)[usize::from(device)].size
                );
            }
        }
    }
}

#[test]
fn failure_13_a_newer_driver_hangs_the_start() {
    let run = Run::new(program("newer")).env("STANDIN_VERSION", "99000");
    let (_, shim) = run.both();
    assert!(shim.stdout.contains("driver 99000\n"), "{}", shim.stdout);
    assert_eq!(device_events(&shim, Kind::Alloc).len(), 1);
}

#[test]
fn failure_14_a_library_that_children_cannot_load() {
    let output = Command::new("readelf")
        .args(["-d", "-W"])
        .arg(&place().shim)
        .output()
        .expect("readelf, of binutils");
    let text = String::from_utf8_lossy(&output.stdout);
    let needed: Vec<_> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| Some(line.split_once('[')?.1.trim_end_matches(']')))
        .collect();
    let family = [
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "librt.so.1",
        "ld-linux-x86-64.so.2",
    ];
    assert!(!needed.is_empty(), "no NEEDED entries in: {text}");
    assert!(
        needed.iter().all(|name| family.contains(name)),
        "libgpushim.so needs {needed:?}"
    );
    // A process with two requests to load the library finds it by its own name.
    assert!(text.contains("soname: [libgpushim.so]"), "{text}");

    // Children without any of the program's library paths.
    let script = "unset LD_LIBRARY_PATH; ls / >listing; env | grep -c ^LD_PRELOAD; \
                  cat listing | sort | head -1 >/dev/null; exec env -i LD_PRELOAD=\"$LD_PRELOAD\" /bin/echo child";
    let shim = Run::new("/bin/sh").arg("-c").arg(script).shim();
    assert_eq!((&shim.stdout[..], shim.code), ("1\nchild\n", 0));
}

/// Under `blocks`: the pages of `vmm` stay where they are, which `crates/alloc` tests.
fn exported(how: &str) -> (Outcome, bool) {
    let (_, shim) = Run::new(program("exported"))
        .may("double free")
        .env("GPUSHIM_POLICY", "blocks")
        .arg(how)
        .both();
    assert_eq!(shim.note("taken"), 128 << 20);
    let trace = shim.trace();
    let worked = shim.note("exported") == 1;
    if worked {
        assert_eq!(trace.of(Kind::Export).len(), 2, "{how}");
        assert_eq!(
            shim.note("back"),
            1,
            "{how}: memory that others may reach was kept"
        );
        let released: Vec<_> = trace
            .of(Kind::Release)
            .iter()
            .map(|event| event.address)
            .collect();
        let first: Vec<_> = trace
            .of(Kind::Alloc)
            .iter()
            .take(2)
            .map(|event| event.address)
            .collect();
        assert!(
            first.iter().all(|address| released.contains(address)),
            "{how}: {first:x?} in {released:x?}"
        );
    }
    (shim, worked)
}

/// Sets the attribute on the context if the driver refuses it for memory in pages. The program sees
/// no difference.
#[test]
fn copies_of_memory_in_pages_can_be_made_to_synchronise() {
    for policy in ["auto", "blocks", "vmm"] {
        let (_, shim) = Run::new(program("exported"))
            .arg("attribute")
            .may("double free")
            .env("GPUSHIM_POLICY", policy)
            .both();
        assert_eq!(shim.stdout.matches("attribute: 0\n").count(), 2, "{policy}");
    }
    // A driver that does not know the flag: its own answer.
    let shim = Run::new(program("exported"))
        .arg("attribute")
        .may("double free")
        .env("GPUSHIM_POLICY", "vmm")
        .older_driver(&["cuCtxSetFlags"])
        .shim();
    assert_eq!(shim.stdout.matches("attribute: 801\n").count(), 2);
}

#[test]
fn failure_15_memory_that_others_registered_is_reused() {
    let (_, worked) = exported("ipc");
    assert!(worked, "the stand-in gives no IPC handles");
    exported("tokens");
    exported("attribute");
    exported("dmabuf");
    // The same without an export: kept, or the above proves nothing.
    let (kept, _) = exported("kept");
    assert_eq!(kept.note("back"), 0, "a plain block was not cached");
    assert!(sum(&kept.trace().of(Kind::Release)) < 128 << 20);
}

//! The command, as a process, on traces made by the writer.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpushim_trace::{Class, Cost, Event, Kind, Writer, WriterOptions, flags};
use serde_json::Value;

mod alarms;
mod check;
mod colours;
mod denials;
mod doctor;
mod findings;
mod help;
mod inputs;
mod iteration;
mod live;
mod packing;
mod pseudo_terminal;
mod report;
mod reports;
#[path = "../fleet/retime.rs"]
mod retime;
mod run_command;
mod run_signals;
mod schema;
mod serving;
mod versions;

const MIB: u64 = 1 << 20;

/// The command in a directory, with nothing of gpushim in its environment.
fn gpushim(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushim"));
    command.args(args).current_dir(dir);
    command.env_remove("LD_PRELOAD").env_remove("COLUMNS");
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GPUSHIM_"))
    {
        command.env_remove(name);
    }
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    gpushim(dir, args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stdout(output)))
}

/// Sets the times of the events of a trace, all of one thread: a millisecond apart, from a fixed
/// moment on. What is printed of them is the same each time.
fn at_fixed_times(trace: &Path, events: u64) {
    let times: Vec<u64> = (0..events).map(|at| at * 1_000_000).collect();
    retime::retime(trace, 1_700_000_000_000_000_000, &times);
}

/// Text of a snapshot: without the folder, this process and this machine.
fn steady(dir: &Path, text: &str) -> String {
    let facts = "program argv exe cwd host pid pid-namespace kernel started writer";
    let is_fact = |line: &str| {
        let line = line.strip_prefix("ok ").unwrap_or(line).trim_start();
        let fact = line.split_once("  ").map_or("", |(name, _)| name);
        facts.split(' ').any(|name| name == fact)
    };
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let process = format!("{} on {}", std::process::id(), machine.trim());
    let lines = text.split_inclusive('\n').filter(|line| !is_fact(line));
    let text = lines
        .collect::<String>()
        .replace(&process, "PID on MACHINE");
    text.replace(&*dir.to_string_lossy(), "DIR")
}

/// Runs a command that must end with this exit code. Returns what it prints on both streams, for a
/// snapshot.
fn printed(dir: &Path, args: &[&str], code: i32) -> String {
    let output = run(dir, args);
    let text = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    steady(dir, &text)
}

/// The only result of a subcommand.
fn result(output: &Output) -> Value {
    let mut answers = json(output);
    let results = answers["results"].as_array_mut().unwrap();
    assert_eq!(results.len(), 1, "{results:#?}");
    results.remove(0)
}

fn event(kind: Kind, address: u64, size: u64) -> Event {
    Event {
        device: 0,
        thread: 77,
        address,
        size,
        ..Event::new(kind, Class::Device)
    }
}

/// A small run: two blocks from the driver, one hit, a tensor, an out-of-memory, one leak.
fn sample(path: &Path) -> PathBuf {
    let options = WriterOptions {
        bytes: 64 << 10,
        rank: Some(2),
        ..WriterOptions::default()
    };
    let writer = Writer::create(path, &options).unwrap();
    for (key, value) in [
        ("driver", "/usr/lib/libcuda.so.1"),
        ("driver.cuda", "13.0"),
        ("cudart", "/opt/libcudart.so.13"),
        ("hooks", "120"),
        ("gpu.0", "NVIDIA H100 80GB HBM3, 85899345920 bytes"),
        ("GPUSHIM_POLICY", "blocks"),
        ("deepbind", "/opt/plugin.so"),
        (
            "takeover.torch",
            "PYTORCH_ALLOC_CONF says backend:cudaMallocAsync already",
        ),
        ("takeover.torch.limits", "`torch.cuda.MemPool`: raises"),
        (
            "problem",
            "GPUSHIM_REUSE=x: expected order, wait or strict; using order",
        ),
        ("odd", "\u{1b}[31mred\u{7}"),
    ] {
        writer.fact(key, value);
    }
    let alloc = |flag, address, size| Event {
        flags: flag,
        extra: [0, Cost::pack(35_000, 2 * MIB)],
        ..event(Kind::Alloc, address, size)
    };
    let tensor = |kind, size| Event {
        class: Class::Tensor,
        extra: [MIB / 2, 2 * MIB],
        ..event(kind, 0x1000, size)
    };
    for event in [
        event(Kind::Reserve, 0x1000, 2 * MIB),
        alloc(flags::GROWN, 0x1000, MIB),
        event(Kind::Reserve, 0x2000, 2 * MIB),
        alloc(flags::GROWN, 0x2000, 2 * MIB),
        tensor(Kind::TensorAlloc, MIB / 2),
        Event {
            extra: [0, Cost::pack(0, 2 * MIB)],
            ..event(Kind::Free, 0x2000, 2 * MIB)
        },
        alloc(flags::HIT, 0x2000, MIB),
        Event {
            result: 2,
            extra: [MIB, 80 << 30],
            ..event(Kind::OutOfMemory, 0, 100 << 30)
        },
    ] {
        writer.record(&event);
    }
    writer.path().to_path_buf()
}

/// A library that can be preloaded into anything: the C library, which is there already.
fn harmless_library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    paths
        .into_iter()
        .find(|path| path.contains("/libc.so.6") || path.contains("/libc-2"))
        .unwrap()
        .to_string()
}

//! Call stacks of allocations, from the program to the names that `gpushim events` shows.

use std::ffi::OsStr;
use std::process::Command;

use serde_json::Value;

use crate::support::{Outcome, Run, library, program_with};

/// Functions without frame pointers and without tail calls, as in programs of distributions, but
/// called.
const FLAGS: [&str; 4] = [
    "-O2",
    "-fomit-frame-pointer",
    "-fno-optimize-sibling-calls",
    "-fno-ipa-icf",
];

fn asking(arguments: &[&str]) -> Run {
    let flags = FLAGS.map(OsStr::new);
    Run::new(program_with("stacks", &flags))
        .args(arguments)
        .env("GPUSHIM_STACKS", "all")
}

/// The functions of each allocation of the only trace, innermost first, by the bytes asked for.
pub fn stacks(outcome: &Outcome) -> Vec<(u64, Vec<String>)> {
    let files = outcome.files();
    let trace = files.iter().find(|name| name.ends_with(".trace"));
    let trace = outcome.folder().join(trace.expect("a trace"));
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(["events", "--stacks", "--format", "json"])
        .arg(trace)
        .output()
        .expect("the command");
    assert!(output.status.success(), "{output:?}");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let events = listed["results"][0]["events"]
        .as_array()
        .expect("events")
        .iter();
    let allocations = events.filter(|event| event["kind"] == "alloc");
    let function = |frame: &Value| {
        let name = frame["name"].as_str();
        name.expect("a function").to_owned()
    };
    let of = |event: &Value| {
        let frames = event["frames"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        (
            event["size"].as_u64().expect("a size"),
            frames.iter().map(function).collect(),
        )
    };
    allocations.map(of).collect()
}

/// Known functions in the stack of the one allocation of this many bytes.
fn of<'a>(stacks: &'a [(u64, Vec<String>)], bytes: u64, known: &[&str]) -> Vec<&'a str> {
    let found: Vec<_> = stacks.iter().filter(|(size, _)| *size == bytes).collect();
    assert_eq!(found.len(), 1, "allocations of {bytes} bytes");
    let functions = found[0].1.iter().map(String::as_str);
    functions
        .filter(|function| known.contains(function))
        .collect()
}

const KNOWN: [&str; 7] = [
    "inner",
    "middle",
    "outer",
    "elsewhere",
    "plain",
    "thread_function",
    "main",
];

#[test]
fn each_allocation_has_its_functions() {
    let (_, shim) = asking(&["plain"]).both();
    let stacks = stacks(&shim);
    let expected = [
        (
            1_000_001,
            &["inner", "middle", "outer", "plain", "main"][..],
        ),
        (1_000_002, &["inner", "elsewhere", "plain", "main"]),
        (1_000_003, &["inner", "middle", "outer", "thread_function"]),
    ];
    for (bytes, functions) in expected {
        // The compiler may put `plain` into `main`; both are named then.
        assert_eq!(of(&stacks, bytes, &KNOWN), functions, "{stacks:?}");
        // No function of the shim is in between.
        let (_, all) = stacks
            .iter()
            .find(|(size, _)| *size == bytes)
            .expect("found above");
        assert_eq!(all[0], "inner");
    }
}

#[test]
fn only_those_asked_for_have_a_stack() {
    let with = |value: &str| {
        let shim = asking(&["many"]).env("GPUSHIM_STACKS", value).shim();
        let stacks = stacks(&shim);
        assert_eq!(stacks.len(), 22);
        let with: Vec<_> = stacks
            .into_iter()
            .filter(|(_, functions)| !functions.is_empty())
            .collect();
        with.iter().map(|(size, _)| *size).collect::<Vec<_>>()
    };
    assert_eq!(with("off"), [] as [u64; 0]);
    assert_eq!(with("all").len(), 22);
    assert_eq!(with("1M"), [4 << 20, 5 << 20]);
    // Of a single thread, exactly.
    assert_eq!(with("1/11").len(), 2);
    assert_eq!(with("1/100").len(), 0);
}

#[test]
fn code_at_the_same_addresses_is_told_apart() {
    let built = |name: &str, size: &str| {
        let flags = [format!("-DNAME={name}"), format!("-DSIZE={size}")];
        let mut flags: Vec<&OsStr> = flags.iter().map(OsStr::new).collect();
        flags.extend(FLAGS.map(OsStr::new));
        library("lib_allocates", &flags)
    };
    // Frames of another size: a rule of the first that outlived it would lead astray in the second.
    let libraries = [
        built("first_library", "16"),
        built("second_library", "4096"),
    ];
    let arguments: Vec<&str> = libraries
        .iter()
        .map(|path| path.to_str().expect("UTF-8"))
        .collect();
    let run = asking(&["reload"]).args(arguments);
    let (_, shim) = run.both();
    let again = shim
        .notes("entry")
        .iter()
        .filter(|note| note[0] == "1")
        .count();
    assert_eq!(again, 4, "the test needs them at the same addresses");
    let stacks = stacks(&shim);
    let known = ["first_library", "second_library", "reload", "main"];
    for number in 0..4 {
        let name = known[number % 2];
        assert_eq!(
            of(&stacks, 2_000_000 + number as u64, &known),
            [name, "reload", "main"],
            "{number}"
        );
    }
}

/// Another user may put anything at the path of a perf map: a pipe must not hold up the process,
/// and a link must not be followed.
#[test]
fn a_perf_map_is_read_only_if_it_is_the_users_own_file() {
    for (what, is_named) in [("file", true), ("link", false), ("pipe", false)] {
        let flags = FLAGS.map(OsStr::new);
        let shim = Run::new(program_with("perf_map", &flags))
            .arg(what)
            .env("GPUSHIM_STACKS", "all")
            .shim();
        let pid = shim.trace().pid();
        for name in ["map", "map.other"] {
            // The names are in the trace, or nowhere.
            let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.{name}"));
        }
        let stacks = stacks(&shim);
        let found = of(&stacks, 1_000_001, &["allocate_odd", "generated"]);
        assert_eq!(found.contains(&"generated"), is_named, "{what}: {stacks:?}");
        assert!(found.contains(&"allocate_odd"), "{what}: {stacks:?}");
    }
}

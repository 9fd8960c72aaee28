//! Ranges, marks and names of threads, by NVTX and by gpushim's own functions, also beside a
//! profiler.
//!
//! Other facts about device memory in the trace are tested here, too: loaded code, the driver's
//! counts, and the memory held by pools when memory ran out.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Outcome, Run, library, place, program};

/// The events of the only trace, as `gpushim events --format json` tells them.
fn events(outcome: &Outcome) -> Vec<Value> {
    let files = outcome.files();
    let trace = files.iter().find(|name| name.ends_with(".trace"));
    let trace = outcome.folder().join(trace.expect("a trace"));
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(["events", "--format", "json"])
        .arg(trace)
        .output()
        .expect("the command");
    assert!(output.status.success(), "{output:?}");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let events = listed["results"][0]["events"].as_array();
    events.expect("events").clone()
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["kind"] == kind)
        .collect()
}

/// Name and domain of the events of a kind, `-` where there is none.
fn names(events: &[Value], kind: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let name = |event: &&Value| format!("{} of {}", text(&event["name"]), text(&event["domain"]));
    of(events, kind).iter().map(name).collect()
}

/// Node of the one allocation of this many bytes; 0 for none.
fn node(events: &[Value], bytes: u64) -> u64 {
    let alloc = of(events, "alloc");
    let found: Vec<_> = alloc
        .iter()
        .filter(|event| event["size"] == bytes)
        .collect();
    assert_eq!(found.len(), 1, "allocations of {bytes} bytes");
    found[0]["stack"].as_u64().unwrap_or(0)
}

/// The node of the last range of this name.
fn range(events: &[Value], name: &str) -> u64 {
    let pushes = of(events, "range-push");
    let found = pushes.iter().rfind(|event| event["name"] == name);
    let node = found.and_then(|event| event["stack"].as_u64());
    node.unwrap_or_else(|| panic!("no range {name}"))
}

/// The numbers that NVTX gave the program.
fn answers(outcome: &Outcome, call: &str) -> Vec<String> {
    outcome
        .notes(call)
        .concat()
        .iter()
        .map(|word| word.to_string())
        .collect()
}

fn nvtx(part: &str) -> Run {
    Run::new(program("nvtx")).arg(part)
}

#[test]
fn ranges_and_marks_of_nvtx() {
    let (native, shim) = nvtx("all").both();
    assert_eq!(answers(&native, "injection"), ["none"]);
    assert_eq!(answers(&native, "push"), ["-2"; 6]);
    assert_eq!(answers(&shim, "injection"), ["gpushim"]);
    assert_eq!(answers(&shim, "push"), ["0", "1", "0", "1", "0", "1"]);
    assert_eq!(
        answers(&shim, "pop"),
        ["1", "0", "1", "0", "1", "0", "-1", "-1"]
    );
    for handle in ["domain", "string"] {
        assert_eq!(answers(&shim, handle), ["0"; 2], "{handle} is null");
    }
    assert_eq!(answers(&shim, "numbers"), ["1", "2", "3", "4"]);

    let events = events(&shim);
    let pushed = [
        "outer of -",
        "inner of -",
        "registered of tools",
        "中 of -",
        "groß of weite Dömäne",
        "wide of weite Dömäne",
    ];
    assert_eq!(names(&events, "range-push"), pushed);
    let marked = [
        "a mark of -",
        "wide mark of -",
        "- of -",
        "registered of tools",
    ];
    assert_eq!(names(&events, "mark"), marked);
    let started = ["over of -", "across of tools", "third of -", "fourth of -"];
    assert_eq!(names(&events, "range-start"), started);
    let numbers = |kind| {
        of(&events, kind)
            .iter()
            .map(|event| event["number"].as_u64())
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers("range-start"), [1, 2, 3, 4].map(Some));
    assert_eq!(numbers("range-end"), [2, 1, 4, 3].map(Some));

    let outer = range(&events, "outer");
    let inner = range(&events, "inner");
    assert_ne!(outer, inner);
    assert_eq!(node(&events, 1000), outer, "a range from before the trace");
    assert_eq!(node(&events, 2000), inner);
    assert_eq!(node(&events, 3000), range(&events, "registered"));
    // The range of the domain is now within the outer one: another node than before.
    let alone = node(&events, 4000);
    assert!(![0, outer, inner, range(&events, "registered")].contains(&alone));
    assert_eq!(node(&events, 5000), outer);
    assert_eq!(node(&events, 6000), range(&events, "wide"));
    assert_eq!(node(&events, 7000), 0);
    let left: Vec<_> = of(&events, "range-pop")
        .iter()
        .map(|event| event["stack"].as_u64().unwrap_or(0))
        .collect();
    assert_eq!(left[..2], [alone, outer]);
    assert_eq!(
        left[2..],
        [range(&events, "groß"), range(&events, "中"), outer, 0]
    );
}

#[test]
fn what_makes_no_sense_is_nameless() {
    let (_, shim) = nvtx("strange").both();
    assert_eq!(answers(&shim, "push"), ["0", "1", "2", "3"]);
    assert_eq!(answers(&shim, "pop"), ["3", "2", "1", "0"]);
    assert_eq!(answers(&shim, "domain"), ["1"]);
    assert_eq!(answers(&shim, "string"), ["1"]);
    let events = events(&shim);
    assert_eq!(names(&events, "range-push"), ["- of -"; 4]);
    assert_eq!(names(&events, "mark"), ["- of -"]);
}

#[test]
fn threads_without_ranges_work_for_the_one_that_pushed_last() {
    let (_, shim) = nvtx("threads").both();
    let events = events(&shim);
    let (phase, next) = (range(&events, "phase"), range(&events, "next"));
    assert_eq!(node(&events, 1000), 0);
    assert_eq!(node(&events, 2000), 0);
    assert_eq!(node(&events, 3000), phase);
    assert_eq!(node(&events, 4000), range(&events, "own"));
    assert_eq!(
        node(&events, 5000),
        0,
        "after the pop of the thread that pushed last"
    );
    assert_eq!(node(&events, 6000), phase);
    assert_eq!(node(&events, 7000), next);
    assert_eq!(node(&events, 8000), phase);
    assert_eq!(node(&events, 9000), 0);
}

#[test]
fn more_ranges_than_are_kept_stay_in_step() {
    let (_, shim) = nvtx("deep").both();
    let events = events(&shim);
    assert_eq!(of(&events, "range-push").len(), 64);
    assert_eq!(of(&events, "range-pop").len(), 64);
    assert_eq!(node(&events, 1000), range(&events, "level 0"));
    for beyond in [1063, 1064, 1069] {
        assert_eq!(node(&events, beyond), range(&events, "level 63"));
    }
    assert_eq!(node(&events, 5000), 0);
}

#[test]
fn each_library_has_a_table_of_its_own() {
    let user = library("lib_nvtx_user", &[]);
    let (_, shim) = nvtx("two").arg(&user).both();
    assert_eq!(answers(&shim, "push"), ["0", "1"]);
    let events = events(&shim);
    assert_eq!(node(&events, 1000), range(&events, "of the library"));

    let (native, shim) = nvtx("two")
        .arg(user)
        .env("NVTX_INJECTION64_PATH", profiler())
        .both();
    assert_eq!(answers(&shim, "push"), answers(&native, "push"));
    assert_eq!(shim.stdout.matches("profiler: here").count(), 2);
}

#[test]
fn a_process_that_only_marks_leaves_no_trace() {
    let (_, shim) = nvtx("idle").both();
    assert_eq!(answers(&shim, "push"), ["0"]);
    assert_eq!(shim.files(), [] as [&str; 0]);
}

#[test]
fn marks_can_be_turned_off() {
    let (native, shim) = nvtx("all").env("GPUSHIM_NVTX", "off").both();
    assert_eq!(shim.stdout, native.stdout);
    let events = events(&shim);
    for kind in [
        "range-push",
        "range-pop",
        "range-start",
        "range-end",
        "mark",
    ] {
        assert_eq!(of(&events, kind).len(), 0, "{kind}");
    }
    let shim = Run::new(program("phases"))
        .env("GPUSHIM_NVTX", "off")
        .shim();
    assert_eq!(names(&self::events(&shim), "range-push"), [] as [&str; 0]);
}

#[test]
fn a_library_that_came_late_changes_nothing() {
    let late = nvtx("late").arg(&place().shim).native();
    assert_eq!(late.told(), "late: unset\n");
}

fn profiler() -> PathBuf {
    library("lib_profiler", &[])
}

/// Output of the program and the profiler, without the lines of the library that NVTX loaded.
fn heard(outcome: &Outcome) -> String {
    let lines = outcome
        .stdout
        .lines()
        .filter(|line| !line.starts_with("# injection"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_profiler_gets_every_call_and_gives_the_answers() {
    let (native, shim) = nvtx("all").env("NVTX_INJECTION64_PATH", profiler()).both();
    assert_eq!(heard(&shim), heard(&native));
    assert_eq!(answers(&native, "injection"), ["another"]);
    assert_eq!(answers(&shim, "injection"), ["gpushim"]);
    // Calls that the profiler takes no part in are seen nevertheless, and answered as natively.
    assert_eq!(
        answers(&native, "push"),
        ["42", "41", "44", "-2", "44", "44"]
    );
    let events = events(&shim);
    let pushed = [
        "outer of -",
        "inner of -",
        "registered of tools",
        "中 of -",
        "groß of weite Dömäne",
        "wide of weite Dömäne",
    ];
    assert_eq!(names(&events, "range-push"), pushed);
    assert_eq!(names(&events, "mark").len(), 4);
    let numbers: Vec<_> = answers(&shim, "numbers");
    let started: Vec<_> = of(&events, "range-start")
        .iter()
        .map(|event| event["number"].to_string())
        .collect();
    assert_eq!(started, numbers, "the profiler's numbers");
    assert_eq!(node(&events, 6000), range(&events, "wide"));
}

#[test]
fn a_profiler_is_found_by_the_programs_that_a_program_becomes() {
    let run = nvtx("exec")
        .arg("all")
        .env("NVTX_INJECTION64_PATH", profiler());
    let (native, shim) = run.both();
    assert_eq!(heard(&shim), heard(&native));
    assert!(shim.stdout.contains("profiler: RangePushA outer\n"));
    // One that has none does not inherit another's.
    let run = nvtx("exec").arg("all");
    let (_, shim) = run.env("_GPUSHIM_NVTX_BEFORE", profiler()).both();
    assert!(!shim.stdout.contains("profiler"), "{}", shim.stdout);
}

#[test]
fn a_profiler_that_refuses_is_left_alone() {
    let run = nvtx("all").env("NVTX_INJECTION64_PATH", profiler());
    let (_, shim) = run.env("PROFILER", "refuses").both();
    assert_eq!(
        shim.stdout.matches("profiler: ").count(),
        1,
        "{}",
        shim.stdout
    );
    assert_eq!(answers(&shim, "push"), ["0", "1", "0", "1", "0", "1"]);
    assert_eq!(of(&events(&shim), "range-push").len(), 6);
}

#[test]
fn one_that_is_not_there_leaves_us_alone() {
    let (_, shim) = nvtx("all")
        .env("NVTX_INJECTION64_PATH", "/not/there.so")
        .both();
    assert_eq!(of(&events(&shim), "range-push").len(), 6);
}

#[test]
fn extensions_are_the_profilers() {
    let (_, shim) = nvtx("extension").both();
    assert_eq!(shim.told(), "extension: 0\n");
    let (_, shim) = nvtx("extension")
        .env("NVTX_INJECTION64_PATH", profiler())
        .both();
    assert_eq!(shim.told(), "extension: 7\n");
}

#[test]
fn phases_by_functions_of_our_own() {
    let (native, shim) = Run::new(program("phases")).both();
    assert_eq!((native.note("there"), shim.note("there")), (0, 1));
    let events = events(&shim);
    let pushed = ["run of -", "step of -", "step of -", "step of -", "- of -"];
    assert_eq!(names(&events, "range-push"), pushed);
    assert_eq!(names(&events, "mark"), ["done \"it\" of -"; 3]);
    for bytes in 1000..1003 {
        assert_eq!(
            node(&events, bytes),
            range(&events, "step"),
            "the same range each time"
        );
    }
    assert_ne!(node(&events, 2000), range(&events, "run"));
    assert_eq!(node(&events, 3000), 0);
}

#[test]
fn threads_have_names() {
    let (_, shim) = nvtx("names").both();
    let events = events(&shim);
    let threads: Vec<_> = answers(&shim, "thread");
    let named = |thread: &str| -> Vec<_> {
        let names = of(&events, "thread-name");
        let own = names
            .iter()
            .filter(|event| event["thread"].as_u64() == thread.parse().ok());
        own.map(|event| event["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    let file = program("nvtx");
    let kernel: String = file
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .chars()
        .take(15)
        .collect();
    assert_eq!(named(&threads[0]), [kernel]);
    assert_eq!(named(&threads[1]), ["lives"]);
    assert_eq!(named("47114711"), ["für später"]);

    let shim = nvtx("all").shim();
    let all = self::events(&shim);
    let names: Vec<_> = of(&all, "thread-name")
        .iter()
        .map(|event| event["name"].to_string())
        .collect();
    assert!(names.contains(&"\"by NVTX\"".to_owned()), "{names:?}");
}

#[test]
fn code_that_is_loaded_takes_memory() {
    let run = Run::new(program("modules")).env("STANDIN_MODULE_BYTES", "6M");
    let (_, shim) = run.both();
    let events = events(&shim);
    let loads = of(&events, "module-load");
    let handles: Vec<_> = loads
        .iter()
        .map(|event| event["address"].to_string())
        .collect();
    assert_eq!(handles, answers(&shim, "module"));
    let bytes: Vec<_> = loads.iter().map(|event| event["size"].as_u64()).collect();
    // A library's module is the library in the stand-in.
    assert_eq!(bytes, [6, 6, 6, 6, 6, 6, 0].map(|mib| Some(mib << 20)));
    assert!(loads.iter().all(|event| event["device"] == 0));

    let (_, bare) = run.arg("bare").both();
    assert_eq!(bare.files(), [] as [&str; 0], "nothing is on a device");
}

/// The figures of the pools at the request that could not be met.
fn shortage(run: Run) -> (Vec<Value>, Outcome) {
    let (_, shim) = run.env("STANDIN_MEMORY", "1G").both();
    let events = events(&shim);
    let at = events
        .iter()
        .position(|event| event["kind"] == "out-of-memory");
    let at = at.expect("an out-of-memory");
    assert_eq!(events[at]["size"], 4096_u64 << 20);
    let state = events[at + 1..]
        .iter()
        .find(|event| event["thread"] == events[at]["thread"]);
    let state = state.expect("an event after it");
    assert_eq!(state["kind"], "pool-state");
    let figures = ["size", "reserved", "largest_free"].map(|name| state[name].clone());
    (figures.to_vec(), shim)
}

#[test]
fn what_pools_hold_when_memory_runs_out() {
    let run = |policy| Run::new(program("shortage")).env("GPUSHIM_POLICY", policy);
    let mib = |figures: [u64; 3]| figures.map(|mib| Value::from(mib << 20)).to_vec();
    // Whole allocations, of 1 MiB and of 4, go back before the program hears of it.
    assert_eq!(shortage(run("blocks")).0, mib([5, 5, 0]));
    let (figures, _) = shortage(run("vmm").arg("async"));
    assert_eq!(figures[0], 4_u64 << 20);
    let free = figures[1].as_u64().expect("bytes") - (4 << 20);
    let largest = figures[2].as_u64().expect("bytes");
    assert!(0 < largest && largest <= free, "{largest} of {free} bytes");
}

#[test]
fn the_drivers_own_figures_are_sampled() {
    for policy in ["auto", "off"] {
        let run = Run::new(program("shortage")).env("GPUSHIM_POLICY", policy);
        let (_, shim) = run.env("STANDIN_MEMORY", "1G").both();
        let events = events(&shim);
        let samples = of(&events, "device-memory");
        let sums = |event: &&Value| {
            assert_eq!(event["device"], 0);
            assert_eq!(event["total"], 1_u64 << 30);
            let free = event["free"].as_u64().expect("bytes");
            assert_eq!(event["size"].as_u64(), Some((1 << 30) - free));
            free
        };
        let free: Vec<_> = samples.iter().map(sums).collect();
        // One at the start and one after the large allocation. There is another if the first fell
        // among the small ones.
        assert!((2..=3).contains(&free.len()), "{policy}: {free:?}");
        assert!(
            free.windows(2).all(|pair| pair[0] != pair[1]),
            "{policy}: {free:?}"
        );
        assert_eq!(free.last(), Some(&shim.note("free")), "{policy}");
    }
}

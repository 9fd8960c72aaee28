//! Pools and their blocks behave as the driver's own. Each program prints its results, and they are
//! the same under the shim.

use gpushim_trace::{Class, Kind};

use crate::support::{Outcome, Run, program, sum};

const POLICIES: [&str; 3] = ["auto", "blocks", "vmm"];

pub(crate) fn asking(name: &str, arguments: &[&str]) -> Run {
    Run::new(program(name))
        .args(arguments)
        .env("STANDIN_DEVICES", "2")
        .env("STANDIN_MEMORY", "512M")
}

/// The program natively and under the shim, in each policy.
fn alike(run: &Run) -> Vec<Outcome> {
    let under = |policy| {
        let (_, shim) = run.clone().env("GPUSHIM_POLICY", policy).both();
        assert_eq!(shim.code, 0, "{policy}: {}", shim.stdout);
        shim
    };
    POLICIES.into_iter().map(under).collect()
}

/// Checks [`alike`], and that the output has these lines: equal output alone may be wrong.
pub(crate) fn alike_with(run: &Run, lines: &[&str]) {
    for outcome in alike(run) {
        for line in lines {
            assert!(
                outcome.stdout.lines().any(|found| found == *line),
                "no line {line:?} in: {}",
                outcome.stdout
            );
        }
    }
}

#[test]
fn pools_of_every_kind() {
    alike(&asking("pools_create", &["kinds"]));
}

#[test]
fn blocks_outlive_their_pool() {
    let run = asking("pools_create", &["destroy"]).may("double free");
    alike_with(
        &run,
        &["free memory as before: 1", "destroy the default pool: 1"],
    );
}

#[test]
fn the_current_pool_serves_what_names_none() {
    let run = asking("pools_create", &["current"]);
    alike_with(
        &run,
        &[
            "used of own 1000, of default 0",
            "used of own 1000, of default 700",
            "used of default 900",
        ],
    );
}

#[test]
fn a_pool_keeps_to_its_bound() {
    alike_with(
        &asking("pools_create", &["bound"]),
        &["used 0, reserved 0", "too much at once: 2"],
    );
}

/// Tests the default pool, and a pool of the program.
fn attributes(part: &str, lines: &[&str]) {
    for pool in ["default", "own"] {
        alike_with(&asking("pools_attributes", &[part, pool]), lines);
    }
}

#[test]
fn attributes_are_set_and_got() {
    attributes(
        "settings",
        &["set 6 to 0: 0", "set 6 to 1: 1", "attribute 99: 1"],
    );
}

#[test]
fn bytes_in_use_are_those_asked_for() {
    attributes(
        "counts",
        &[
            "and 1: used 104857602, at most 104857602; reserved enough, at most as much",
            "trimmed: used 0, at most 2097152; reserved none, at most as much",
        ],
    );
}

#[test]
fn a_pool_keeps_up_to_its_threshold() {
    attributes("kept", &["kept all: 1", "memory as before: 1"]);
}

#[test]
fn trimming_takes_nothing_that_is_in_use() {
    attributes("trims", &["reserved: 0"]);
}

/// Runs the part natively and in each policy: the output is the same.
fn figures(part: &str, lines: usize) {
    for pool in ["default", "own"] {
        for policy in ["auto", "blocks", "off"] {
            let run = asking("pools_attributes", &[part, pool]).env("GPUSHIM_POLICY", policy);
            let (native, shim) = run.both();
            assert_eq!(shim.code, 0, "{policy}, {pool}: {}", shim.stdout);
            assert_eq!(native.stdout.lines().count(), lines, "{}", native.stdout);
        }
    }
}

/// Asked by CuPy's tests of its asynchronous pool.
#[test]
fn small_requests_change_what_is_used_and_not_what_is_reserved() {
    figures("small", 5);
}

#[test]
fn figures_fit_each_other_at_every_moment() {
    figures("random", 8);
}

#[test]
fn segments_are_told_by_the_pools_that_hold_them() {
    let run = asking("pools_attributes", &["beside", "own"]).shim();
    let trace = run.trace();
    let held = |class| {
        let of = |kind| sum(&trace.class(kind, class));
        of(Kind::Reserve) - of(Kind::Release)
    };
    let reserved = run.note("reserved");
    assert!((5 << 20..=6 << 20).contains(&reserved), "{reserved}");
    // The pages of `cudaMalloc` are of a pool, too, but not of the program's.
    assert_eq!(held(Class::PoolAsync), reserved + (30 << 20));
    assert_eq!(held(Class::Device), 0);
}

#[test]
fn access_is_told_and_changed() {
    alike_with(
        &asking("pools_access", &["codes"]),
        &["at first: 3 0", "given: 3 3", "taken: 3 0"],
    );
}

#[test]
fn another_device_may_use_a_pool_that_lets_it_in() {
    alike_with(
        &asking("pools_access", &["kernels"]),
        &["used 0, reserved 0", "done"],
    );
}

#[test]
fn another_device_has_no_access_unasked() {
    let run = asking("pools_access", &["fault"]).may("access:");
    let faults = |outcome: &Outcome| outcome.findings.len();
    assert_eq!(faults(&run.native()), 1);
    for outcome in alike(&run) {
        assert_eq!(faults(&outcome), 1, "{:?}", outcome.findings);
    }
}

#[test]
fn access_to_a_pool_is_not_the_programs_peer_access() {
    alike_with(
        &asking("pools_access", &["peer"]),
        &["enable again: 704", "disable again: 705", "done"],
    );
}

#[test]
fn each_device_has_pools_of_its_own() {
    alike_with(
        &asking("pools_access", &["devices"]),
        &["device of the stream: 1", "done"],
    );
}

#[test]
fn sizes_from_nothing_to_too_much() {
    alike_with(
        &asking("async_blocks", &["sizes"]),
        &["no bytes: 0, null", "used 41000355", "used 0"],
    );
}

#[test]
fn right_and_wrong_frees() {
    let run = asking("async_blocks", &["frees"]).may("double free");
    alike_with(
        &run,
        &[
            "twice: 1",
            "of cuMemAlloc: 0",
            "inside: 1",
            "used 0, reserved 0",
        ],
    );
}

#[test]
fn what_an_address_tells() {
    alike_with(
        &asking("async_blocks", &["pointers"]),
        &[
            "small: size: 0, 1000",
            "inside the large: range: 0, base + 0, 5242881 bytes",
            "large: pool: 0, its pool",
            "large: legacy IPC: 0, 0",
            "freed: size: 1, 0",
        ],
    );
}

#[test]
fn no_other_process_can_have_it() {
    // The shim may say why.
    let run = asking("async_blocks", &["ipc"]).may_complain();
    alike_with(&run, &["IPC handle: 1", "IPC handle, inside: 1"]);
}

#[test]
fn in_a_capture() {
    for mode in ["0", "1", "2"] {
        let run = asking("async_capture", &[mode]);
        let native = run.native();
        for outcome in alike(&run) {
            let [before, under] = [&native, &outcome].map(|outcome| outcome.notes("call"));
            assert_eq!(under.len(), 20, "{}", outcome.stdout);
            for (before, under) in before.iter().zip(&under) {
                // A call that the driver forbids may be possible without the driver, and then
                // breaks no capture.
                let is_served = under[2..5] == ["0", "1", "0"];
                assert!(
                    under == before || is_served,
                    "mode {mode}: {under:?}, natively {before:?}"
                );
                // The block from before is freed if the call that frees it succeeded.
                let frees = matches!(under[0], "free" | "free_by_cuMemFree") && under[2] == "0";
                let used = if frees { "0" } else { "3145728" };
                assert_eq!(under[5], used, "mode {mode}: {under:?}");
            }
        }
        alike_with(
            &run,
            &[
                "free of memory from outside: 1",
                "status: 1",
                "end: 0",
                "nodes: 10 2 10 2 2 11",
            ],
        );
        let off = run.env("GPUSHIM_POLICY", "off").shim();
        assert_eq!(off.notes("call"), native.notes("call"), "mode {mode}");
    }
}

#[test]
fn memory_of_malloc_is_not_a_graphs_to_free() {
    for mode in ["0", "1", "2"] {
        alike_with(
            &asking("async_capture", &[mode, "plain"]),
            &["free of memory of cuMemAlloc: 1", "free by cuMemFree: 0"],
        );
    }
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    for outcome in alike(&asking("async_streams", &["threads"])) {
        assert!(
            outcome.stdout.contains("used 0, reserved 0\n"),
            "{}",
            outcome.stdout
        );
        let trace = outcome.trace();
        let blocks = 3 * 4 * 50 * 2;
        for kind in [Kind::Alloc, Kind::Free] {
            assert_eq!(trace.count(kind, Class::PoolAsync), blocks, "{kind:?}");
        }
    }
}

#[test]
fn handles_that_are_no_stream() {
    alike_with(
        &asking("async_streams", &["invalid"]),
        &["allocate on no stream: 400", "used 4096", "used 0"],
    );
}

#[test]
fn streams_end_before_their_work_does() {
    alike_with(
        &asking("async_streams", &["destroyed"]),
        &["used 0, reserved 0"],
    );
}

#[test]
fn without_a_context() {
    alike_with(
        &asking("async_streams", &["no-context"]),
        &["allocate: 201", "free by cuMemFree: 0", "allocate: 0"],
    );
}

#[test]
fn a_reset_context_with_live_blocks() {
    // The program frees a block of the context that is no more.
    let run = asking("async_streams", &["reset"]).may("double free");
    alike_with(&run, &["reset: 0", "done"]);
}

#[test]
fn a_child_of_fork_has_no_pools() {
    alike_with(
        &asking("async_streams", &["forks"]),
        &[
            "child: allocate 3, free 3, by cuMemFree 3",
            "parent: used 0",
        ],
    );
}

/// Checks that short-lived threads, streams or contexts leave nothing behind.
///
/// For 6000 of them the process's memory grows at most 1 MiB more than natively. (The stand-in
/// keeps some memory for contexts.) The last ones take no more than twice the time of the first
/// ones.
fn comes_and_goes(what: &str) {
    for policy in ["auto", "blocks"] {
        let run = Run::new(program("comings"))
            .args([what, "8000"])
            // The background thread reads the ring into memory: at most one ring.
            .env("GPUSHIM_TRACE_SIZE", "64K")
            .env("GPUSHIM_POLICY", policy);
        let (native, shim) = run.both();
        assert_eq!(shim.code, 0, "{policy}: {}", shim.stdout);
        // Memory may also shrink.
        let [grown, natively] = [&shim, &native].map(|run| run.signed_note("grown"));
        let [first, last] = ["first", "last"].map(|note| shim.note(note));
        assert!(
            grown <= natively + 1024,
            "{policy}: grew by {grown} KiB, natively by {natively}"
        );
        assert!(
            last <= 2 * first,
            "{policy}: {last} ns each in the end, {first} at first"
        );
    }
}

#[test]
fn threads_with_a_default_stream_come_and_go() {
    comes_and_goes("threads");
}

#[test]
fn streams_come_and_go() {
    comes_and_goes("streams");
}

#[test]
fn contexts_with_streams_come_and_go() {
    comes_and_goes("contexts");
}

#[test]
fn pools_are_made_and_destroyed_without_end() {
    let (_, shim) = Run::new(program("pool_churn"))
        .env("STANDIN_MEMORY", "8G")
        .both();
    assert_eq!(shim.code, 0, "{}", shim.stdout);
}

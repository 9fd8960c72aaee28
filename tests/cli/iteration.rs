//! Iterations that the user defines by their beginning.

use super::*;

/// The subcommands that go by iterations.
const COMMANDS: [&str; 6] = ["growth", "phases", "oom", "report", "check", "tune"];

/// Rounds of a range, each of which keeps 1 MiB. All allocations of the run are alike.
fn rounds(path: &Path, rounds: u64) {
    let writer = Writer::create(path, &WriterOptions::default()).unwrap();
    let range = |kind, address| Event {
        address,
        ..event(kind, 0, 0)
    };
    for number in 0..rounds {
        let name = writer.intern(&format!("round {number}"));
        writer.record(&range(Kind::RangePush, name.into()));
        let at = 0x1000_0000 + number * 0x100_0000;
        for (place, size) in [(0, MIB), (4, 2 * MIB), (8, 3 * MIB)] {
            writer.record_alloc(&event(Kind::Alloc, at + place * MIB, size));
        }
        for (place, size) in [(4, 2 * MIB), (8, 3 * MIB)] {
            writer.record_free(&event(Kind::Free, at + place * MIB, size));
        }
        writer.record(&range(Kind::RangePop, 0));
    }
}

#[test]
fn the_user_sets_what_begins_an_iteration() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    rounds(&dir.join("few.trace"), 3);
    // Three passes are enough to name kept memory, and too few to fail a check.
    let few = ["few.trace", "--iteration", "round"];
    insta::assert_snapshot!(printed(dir, &[&["growth"], &few[..]].concat(), 1), @"
    few.trace: device memory
    an allocation of 1.0 MiB without a stack keeps 1.0 MiB in each `round` (2 of 2)
    3 iterations, recognised by the range `round`; sure: set by --iteration.
    Likely: 2 of 2 passes left some; 3 passes are few.

    per pass     kept  blocks    share  by
     1.0 MiB  2.0 MiB       2  100.0 %  blocks of 1.0 MiB, no stack recorded
    ");
    insta::assert_snapshot!(printed(dir, &[&["check"], &few[..]].concat(), 0), @"
    few.trace
      ?     leaks: not told: likely: an allocation of 1.0 MiB without a stack keeps 1.0 MiB in each `round` (2 of 2) (3 passes of the range `round`; 2 of 2 passes left some; 3 passes are few)
    ");
    let strict = run(dir, &[&["check", "--strict"], &few[..]].concat());
    assert_eq!(strict.status.code(), Some(1), "{}", stdout(&strict));
    rounds(&dir.join("a.trace"), 12);
    for (marker, by) in [
        ("round", "the range `round`"),
        ("round #", "the range `round #`"),
        ("round 1", "the range `round #`"),
        ("3MiB", "allocations of 3145728 bytes"),
        ("3145728", "allocations of 3145728 bytes"),
    ] {
        let with = |command: &str| run(dir, &[command, "a.trace", "--iteration", marker]);
        let line = format!("12 iterations, recognised by {by}; sure: set by --iteration.");
        let growth = with("growth");
        let text = stdout(&growth);
        assert_eq!(growth.status.code(), Some(1), "{text}");
        assert!(text.contains(&line), "{marker}: {text}");
        assert!(text.contains("keeps 1.0 MiB in each "), "{text}");
        let phases = stdout(&with("phases"));
        assert!(phases.contains(&line), "{phases}");
        assert!(phases.contains("round #"), "{phases}");
        assert_eq!(
            phases.contains("\niteration"),
            !marker.contains("round"),
            "{phases}"
        );
        let report = stdout(&with("report"));
        assert!(report.contains("keeps 1.0 MiB in each "), "{report}");
        assert!(report.contains("gpushim growth --iteration "), "{report}");
        assert_eq!(with("check").status.code(), Some(1));
    }
    // Each of several that are in one round begins an iteration.
    let output = run(
        dir,
        &[
            "growth",
            "--format",
            "json",
            "--iteration",
            "1MiB",
            "a.trace",
        ],
    );
    let recognised = &result(&output)["recognised"];
    assert_eq!(recognised["by"]["size"], MIB);
    assert_eq!(
        (&recognised["count"], &recognised["set"]),
        (&12.into(), &true.into())
    );
}

#[test]
fn a_page_and_a_comparison_go_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    rounds(&dir.join("a.trace"), 3);
    rounds(&dir.join("b.trace"), 5);
    let both = ["a.trace", "b.trace", "--iteration", "3MiB"];
    let diff = run(dir, &[&["diff", "--format", "json"], &both[..]].concat());
    let iterations = &result(&diff)["iterations"];
    assert_eq!(iterations, &serde_json::json!([3, 5]));
    let page = run(dir, &[&["html", "-o", "a.html"], &both[..]].concat());
    assert_eq!(page.status.code(), Some(0), "{}", stderr(&page));
    assert!(dir.join("a.html").exists());
    let none = run(
        dir,
        &["html", "-o", "b.html", "a.trace", "--iteration", "epoch"],
    );
    assert_eq!(none.status.code(), Some(2));
    assert!(!dir.join("b.html").exists());
}

#[test]
fn what_a_recording_does_not_have_is_an_error_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    rounds(&dir.join("a.trace"), 3);
    rounds(&dir.join("once.trace"), 1);
    for command in COMMANDS {
        let output = run(dir, &[command, "a.trace", "--iteration", "epoch"]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert_eq!(
            stderr(&output).trim_end(),
            "gpushim: failed to find iterations by `epoch` in a.trace: no range has that name, and no function in the \
             stack of an allocation (it has the ranges `round #` 3 times; name one of these, or leave out --iteration)"
        );
        // The other recording is shown nevertheless.
        let output = run(
            dir,
            &[command, "once.trace", "a.trace", "--iteration", "round"],
        );
        assert_eq!(output.status.code(), Some(2), "{command}");
        let told = stderr(&output);
        assert!(told.contains("in once.trace: it comes only once"), "{told}");
        assert!(!stdout(&output).is_empty(), "{command}");
    }
    let with = |marker: &str| printed(dir, &["growth", "a.trace", "--iteration", marker], 2);
    insta::assert_snapshot!(with("5MiB") + &with("0"), @"
    gpushim: failed to find iterations by 5242880 bytes in a.trace: no allocation is of that size (it has the sizes 1048576 3 times, 2097152 3 times, 3145728 3 times; name one of these, or leave out --iteration)
    error: invalid value '0' for '--iteration <RANGE|FUNCTION|SIZE>': no allocation is of 0 bytes

    For more information, try '--help'.
    ");
}

#[test]
fn a_function_of_a_snapshot() {
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    let growth = ["growth", "layers32_forward.pickle.gz"];
    insta::assert_snapshot!(printed(data, &growth, 0), @"
    layers32_forward.pickle.gz: tensors
    Whether memory grows is not seen: all that comes again is inside one call of `_wrapped_call_impl`.
    ");
    // The layers of one call are no calls of their own.
    let forward = [&growth[..], &["--iteration", "forward"]].concat();
    let text = stdout(&run(data, &forward));
    let by = "recognised by the calls of `forward`; not sure: they repeat inside one call of";
    assert!(text.contains(by), "{text}");
    let args = ["phases", "backward_wide.pickle.gz", "--iteration", "step"];
    insta::assert_snapshot!("phases_by_function", printed(data, &args, 0));
    // Each parameter's update is the allocation of the size that the user named.
    let size = ["phases", "backward_wide.pickle.gz", "--iteration", "3072"];
    insta::assert_snapshot!("phases_by_size", printed(data, &size, 0));
}

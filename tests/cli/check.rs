//! Findings of `check`, and its exit codes.

use super::*;

/// A training loop of 20 steps in ranges, each of which keeps some bytes.
fn training(path: &Path, kept: u64, batch: u64) {
    let writer = Writer::create(path, &WriterOptions::default()).unwrap();
    let name = writer.intern("step");
    for step in 0..20_u64 {
        let range = writer.stack_child(0, gpushim_trace::StackNode::Range { name, domain: 0 });
        let in_range = |event: Event| Event {
            stack: range,
            ..event
        };
        writer.record(&in_range(event(Kind::RangePush, name.into(), 0)));
        let batch_at = 1 << 40;
        writer.record(&in_range(event(Kind::Alloc, batch_at, batch)));
        if kept > 0 {
            let at = (1 << 41) + step * (1 << 30);
            writer.record(&in_range(event(Kind::Alloc, at, kept)));
        }
        writer.record(&in_range(event(Kind::Free, batch_at, batch)));
        writer.record(&event(Kind::RangePop, 0, 0));
    }
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn limits_and_leaks() {
    let dir = tempfile::tempdir().unwrap();
    training(&dir.path().join("sound.trace"), 0, 64 * MIB);
    training(&dir.path().join("leaks.trace"), MIB, 64 * MIB);
    let check = |args: &[&str]| run(dir.path(), &[&["check"], args].concat());
    let both = printed(dir.path(), &["check", "sound.trace", "leaks.trace"], 1);
    insta::assert_snapshot!(both, @"
    sound.trace
      ok    leaks: no iteration leaves anything behind
    leaks.trace
      FAIL  leaks: an allocation of 1.0 MiB without a stack keeps 1.0 MiB in each `step` (13 of 13)
    ");
    for (args, expected) in [
        (&["--max-peak", "64MiB", "sound.trace"][..], 0),
        (&["--max-peak", "63MiB", "sound.trace"], 1),
        (&["--max-reserved", "1GiB", "sound.trace"], 0),
        (&["--max-growth", "1MiB", "leaks.trace"], 0),
        (&["--max-growth", "1000K", "leaks.trace"], 1),
        (&["--no-oom", "leaks.trace"], 0),
        (&["--no-leaks", "sound.trace", "leaks.trace"], 1),
        (&["sound.trace", "absent.trace"], 2),
        (&["--max-peak", "much", "sound.trace"], 2),
        (&["--baseline", "absent.toml", "sound.trace"], 2),
    ] {
        let output = check(args);
        assert_eq!(
            code(&output),
            Some(expected),
            "{args:?}: {}",
            stdout(&output)
        );
    }
}

#[test]
fn a_request_that_ran_out_of_memory() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let oom = printed(dir.path(), &["check", "--no-oom", "a.trace"], 1);
    // There are no iterations: nothing is known of leaks, which is no failure.
    let leaks = printed(dir.path(), &["check", "--no-leaks", "a.trace"], 0);
    insta::assert_snapshot!(oom + &leaks, @"
    a.trace
      FAIL  out of memory: 1 request ran out of memory
    a.trace
      ?     leaks: not told: Whether memory grows: nothing comes again often enough to be a pass of a loop.
    ");
}

#[test]
fn a_baseline_that_is_saved_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    training(&dir.path().join("before.trace"), 0, 64 * MIB);
    training(&dir.path().join("more.trace"), 0, 70 * MIB);
    training(&dir.path().join("less.trace"), 0, 32 * MIB);
    let check = |args: &[&str]| run(dir.path(), &[&["check"], args].concat());
    let output = check(&["--save-baseline", "memory.toml", "before.trace"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let size = dir.path().join("memory.toml").metadata().unwrap().len();
    assert!(size < 4096, "{size} bytes");
    for (trace, tolerance, expected) in [
        ("before.trace", "0%", 0),
        ("more.trace", "2%", 1),
        ("more.trace", "10%", 0),
        ("less.trace", "0%", 0),
    ] {
        let args = ["--baseline", "memory.toml", "--tolerance", tolerance, trace];
        let output = check(&args);
        assert_eq!(
            code(&output),
            Some(expected),
            "{trace}: {}",
            stdout(&output)
        );
    }
    let args = ["--baseline", "memory.toml", "more.trace", "--format"];
    let format = |name| printed(dir.path(), &[&["check"], &args[..], &[name]].concat(), 1);
    insta::assert_snapshot!(format("junit"), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuites>
      <testsuite name="more.trace" tests="2" failures="1" skipped="0">
        <testcase classname="gpushim" name="peak of device memory on gpu 0 against the baseline">
          <failure message="70.0 MiB, 6.0 MiB more than the 64.0 MiB of the baseline (+9.4 %); 6.0 MiB more by an allocation without a recorded stack"/>
        </testcase>
        <testcase classname="gpushim" name="reserved of device memory on gpu 0 against the baseline">
          <system-out>0 B, as in the baseline</system-out>
        </testcase>
      </testsuite>
    </testsuites>
    "#);
    insta::assert_snapshot!(format("github"), @"
    ::error title=gpushim peak of device memory on gpu 0 against the baseline::more.trace: 70.0 MiB, 6.0 MiB more than the 64.0 MiB of the baseline (+9.4 %25); 6.0 MiB more by an allocation without a recorded stack
    ok: reserved of device memory on gpu 0 against the baseline: more.trace: 0 B, as in the baseline
    ");
    let output = check(&[&args[..], &["json"]].concat());
    assert_eq!(code(&output), Some(1));
    assert!(stdout(&output).contains("\"status\": \"failed\""));
}

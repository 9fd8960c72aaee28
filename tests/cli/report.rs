//! Output of `report` and `events`.

use super::*;

#[test]
fn report_tells_the_run_on_one_screen() {
    let dir = tempfile::tempdir().unwrap();
    at_fixed_times(&sample(&dir.path().join("a.trace")), 8);
    let text = printed(dir.path(), &["report", "a.trace"], 0);
    insta::assert_snapshot!(text);
    assert!(
        text.lines().count() <= 50,
        "one screen: {} lines",
        text.lines().count()
    );
}

#[test]
fn several_traces_are_the_ranks_of_one_job() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    std::fs::create_dir(&job).unwrap();
    for (rank, blocks) in [(0, 50), (1, 50), (2, 90), (3, 51)] {
        let options = WriterOptions {
            rank: Some(rank),
            ..WriterOptions::default()
        };
        let path = job.join(format!("{rank}.trace"));
        let writer = Writer::create(&path, &options).unwrap();
        for block in 0..blocks {
            writer.record(&event(Kind::Alloc, (block + 1) << 21, 2 * MIB));
        }
        drop(writer);
        at_fixed_times(&path, blocks);
    }
    let output = run(dir.path(), &["report", "job", "--format", "json"]);
    // A rank of a job stands out.
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found = json(&output);
    // Of the ranks the one that stands out.
    assert_eq!(found["results"].as_array().unwrap().len(), 1);
    let job = &found["jobs"][0];
    assert_eq!(job["ranks"].as_array().unwrap().len(), 4);
    let outliers = job["outliers"].as_array().unwrap();
    assert_eq!(
        (&job["highest"], outliers.len(), &outliers[0]["ranks"]),
        (&"2".into(), 1, &serde_json::json!(["2"]))
    );
    assert_eq!(outliers[0]["kind"], "imbalance");
    assert_eq!(job["ranks"][2]["peak"], 180 * MIB);
    // 241 blocks of 2 MiB on four ranks.
    assert_eq!(job["totals"]["peak"]["sum"], 241 * 2 * MIB);
    let files = [0, 1, 2, 3].map(|rank| format!("job/{rank}.trace"));
    let args = [&["report"], &files.each_ref().map(String::as_str)[..]].concat();
    // The one report that follows is of the highest rank.
    insta::assert_snapshot!(printed(dir.path(), &args, 1));
    let kinds = found["results"][0]["findings"].as_array().unwrap();
    assert_eq!(kinds.last().unwrap()["kind"], "imbalance", "{kinds:?}");
    // The report of one trace compares it with the traces beside it, too.
    for (rank, is_told) in [(2, true), (0, false)] {
        let alone = printed(dir.path(), &["report", &format!("job/{rank}.trace")], 0);
        assert_eq!(
            alone.contains("The peak is 180.0 MiB, 80.0 % more"),
            is_told,
            "{alone}"
        );
    }
    // The page of the folder is that of the job, and has a link to the page of a rank beside it.
    for (args, page) in [
        (["html", "job/2.trace"], "2.html"),
        (["html", "job"], "job.html"),
    ] {
        assert!(printed(dir.path(), &args, 0).starts_with(&format!("{page}, ")));
    }
    let page = std::fs::read_to_string(dir.path().join("job.html")).unwrap();
    assert!(page.contains("<body class=\"job\">"));
    let one = printed(dir.path(), &["report", "job/0.trace"], 0);
    insta::assert_snapshot!("one_rank_of_a_job", one);
}

#[test]
fn separate_runs_are_no_job() {
    let dir = tempfile::tempdir().unwrap();
    // Two runs without a rank, and the same rank of two runs one after the other.
    for (name, rank) in [("a", None), ("b", None), ("c", Some(0)), ("d", Some(0))] {
        let options = WriterOptions {
            rank,
            ..WriterOptions::default()
        };
        let path = dir.path().join(format!("{name}.trace"));
        let writer = Writer::create(&path, &options).unwrap();
        writer.record(&event(Kind::Alloc, 1 << 21, 2 * MIB));
    }
    for files in [
        ["a.trace", "b.trace"],
        ["c.trace", "d.trace"],
        ["a.trace", "c.trace"],
    ] {
        let output = run(dir.path(), &["report", files[0], files[1]]);
        let text = stdout(&output);
        assert_eq!(text.matches("trace      ").count(), 2, "{text}");
        assert!(!text.contains("ranks"), "{text}");
    }
    // Those with findings first, with a blank line between.
    let writer =
        Writer::create(&dir.path().join("grows.trace"), &WriterOptions::default()).unwrap();
    for block in 0..50 {
        writer.record(&event(Kind::Alloc, (block + 1) << 21, 2 * MIB));
    }
    drop(writer);
    let text = stdout(&run(dir.path(), &["report", "a.trace", "grows.trace"]));
    assert!(text.starts_with("trace      grows.trace\n"), "{text}");
    assert!(text.contains("\n\ntrace      a.trace\n"), "{text}");
}

#[test]
fn a_rank_with_findings_is_named_in_the_singular() {
    let dir = tempfile::tempdir().unwrap();
    for (rank, blocks) in [(0, 1), (1, 50), (2, 1)] {
        let options = WriterOptions {
            rank: Some(rank),
            ..WriterOptions::default()
        };
        let path = dir.path().join(format!("{rank}.trace"));
        let writer = Writer::create(&path, &options).unwrap();
        for block in 0..blocks {
            writer.record(&event(Kind::Alloc, (block + 1) << 21, 2 * MIB));
        }
    }
    let text = stdout(&run(dir.path(), &["report", "."]));
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("3 ranks on 1 host"), "{first}");
    assert!(first.ends_with(" Only rank 1 has findings."), "{first}");
}

#[test]
fn report_as_json_has_exact_figures() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let output = run(
        dir.path(),
        &["report", "--format", "json", "a.trace", "a.trace"],
    );
    assert_eq!(output.status.code(), Some(0));
    let value = json(&output);
    assert_eq!(value["results"].as_array().unwrap().len(), 2);
    let report = &value["results"][0];
    let device = &report["summary"]["devices"][0];
    assert_eq!(device["requested"]["peak"], 3 * MIB);
    assert_eq!(device["reserved"]["end"], 4 * MIB);
    assert_eq!(device["tensors"]["tensors"]["peak"], MIB / 2);
    assert_eq!(device["top_at_end"][0]["count"], 2);
    assert_eq!(report["summary"]["sources"]["grown"], 2);
    assert_eq!(report["summary"]["events"]["recorded"], 8);
}

#[test]
fn without_a_file_the_newest_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["report"]);
    assert_eq!(output.status.code(), Some(2));
    let line = stderr(&output);
    assert!(
        line.starts_with("gpushim: failed to find a trace: no file here ends with .trace;"),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1);
    sample(&dir.path().join("gpushim-h-1.trace"));
    std::thread::sleep(Duration::from_millis(20));
    sample(&dir.path().join("gpushim-h-2.trace"));
    std::thread::sleep(Duration::from_millis(20));
    sample(&dir.path().join("other.trace"));
    let text = stdout(&run(dir.path(), &["report"]));
    assert!(text.starts_with("trace      other.trace\n"), "{text}");
    for (pattern, newest) in [
        ("gpu%h.trace", "gpushim-h-2.trace"),
        ("no%p", "other.trace"),
    ] {
        let mut elsewhere = gpushim(dir.path(), &["report"]);
        let told = elsewhere.env("GPUSHIM_TRACE", pattern).output().unwrap();
        let first = format!("trace      {newest}\n");
        assert!(stdout(&told).starts_with(&first), "{pattern}: {told:?}");
    }
}

#[test]
fn a_file_beside_a_trace_is_told_by_its_trace() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default());
    let writer = writer.unwrap();
    writer.record(&event(Kind::Alloc, 1 << 21, MIB));
    let of_an_earlier_form = include_str!("../data/summary-1.json");
    std::fs::write(dir.path().join("a.trace.summary"), of_an_earlier_form).unwrap();
    let told = stdout(&run(dir.path(), &["report", "a.trace.summary"]));
    assert!(
        told.starts_with("a.trace.summary is the summary of a.trace\n"),
        "{told}"
    );
    let refused = stderr(&run(dir.path(), &["growth", "a.trace.summary"]));
    assert!(
        refused.contains("it belongs to the trace a.trace; name that file"),
        "{refused}"
    );
}

#[test]
fn a_wrapped_ring_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 4096,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    (0..500).for_each(|address| writer.record(&event(Kind::Alloc, address, 1)));
    let text = stdout(&run(dir.path(), &["report", "a.trace"]));
    assert!(
        text.contains("events     500 recorded, 64 can be read: 436 lost"),
        "{text}"
    );
    assert!(text.contains("the ring has wrapped"), "{text}");
}

#[test]
fn a_block_that_outlives_the_ring_counts() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 4096,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    writer.record_alloc(&event(Kind::Alloc, MIB, 3 * MIB));
    // The block's time of allocation is before all events that the ring still has.
    std::thread::sleep(Duration::from_millis(1));
    for _ in 0..500 {
        writer.record_alloc(&event(Kind::Alloc, 64 * MIB, MIB));
        writer.record_free(&event(Kind::Free, 64 * MIB, MIB));
    }
    let report = json(&run(dir.path(), &["report", "a.trace", "--format", "json"]));
    let summary = &report["results"][0]["summary"];
    assert_eq!(summary["events"]["wrapped"], true);
    assert_eq!(
        (&summary["older"]["count"], &summary["older"]["bytes"]),
        (&1.into(), &(3 * MIB).into())
    );
    let requested = &summary["devices"][0]["requested"];
    assert_eq!(
        (&requested["peak"], &requested["end"]),
        (&(4 * MIB).into(), &(3 * MIB).into())
    );
    let held = &report["results"][0]["peaks"][0];
    assert_eq!(
        (&held["bytes"], &held["unknown"]),
        (&(4 * MIB).into(), &0.into())
    );
}

#[test]
fn events_are_listed_filtered_and_limited() {
    let dir = tempfile::tempdir().unwrap();
    at_fixed_times(&sample(&dir.path().join("a.trace")), 8);
    insta::assert_snapshot!(printed(dir.path(), &["events", "a.trace"], 0), @"
    event      seconds   thread kind           class      gpu  address                  size
        0     0.000000       77 reserve        device       0  0x1000                2.0 MiB
        1     0.001000       77 alloc          device       0  0x1000                1.0 MiB grown, block 2.0 MiB, 35.0 µs in the driver
        2     0.002000       77 reserve        device       0  0x2000                2.0 MiB
        3     0.003000       77 alloc          device       0  0x2000                2.0 MiB grown, block 2.0 MiB, 35.0 µs in the driver
        4     0.004000       77 tensor-alloc   tensor       0  0x1000              512.0 KiB, allocated 512.0 KiB, reserved 2.0 MiB
        5     0.005000       77 free           device       0  0x2000                2.0 MiB, block 2.0 MiB
        6     0.006000       77 alloc          device       0  0x2000                1.0 MiB hit, block 2.0 MiB, 35.0 µs in the driver
        7     0.007000       77 out-of-memory  device       0  0x0                 100.0 GiB, free 1.0 MiB, of 80.0 GiB, result 2
    ");
    let some = stdout(&run(
        dir.path(),
        &["events", "--kind", "alloc,free", "--limit", "2", "a.trace"],
    ));
    assert_eq!(some.lines().count(), 3, "{some}");
    let output = run(
        dir.path(),
        &["events", "--kind", "alloc", "--format", "json", "a.trace"],
    );
    let listed = result(&output);
    assert_eq!(listed["trace"], "a.trace");
    let lines = listed["events"].as_array().unwrap();
    assert_eq!(lines.len(), 3);
    // Each on a line of its own.
    assert_eq!(stdout(&output).lines().count(), 2 + 3);
    let two = run(
        dir.path(),
        &[
            "events", "--limit", "1", "--format", "json", "a.trace", "a.trace",
        ],
    );
    let two = json(&two);
    assert_eq!(
        (&two["command"], &two["found"]),
        (&"events".into(), &false.into())
    );
    assert_eq!(two["results"].as_array().unwrap().len(), 2);
    assert_eq!(two["results"][1]["events"].as_array().unwrap().len(), 1);
    assert_eq!(lines[0]["event"], 1);
    assert_eq!(lines[0]["address"], 0x1000);
    assert_eq!(lines[0]["flags"][0], "grown");
    assert_eq!(lines[0]["block"], 2 * MIB);
    assert_eq!(lines[0]["thread"], 77);
    assert_eq!(lines[2]["flags"][0], "hit");
    let wrong = run(dir.path(), &["events", "--kind", "allocation", "a.trace"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("expected one of alloc, free, reserve"));
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    (0..50_000).for_each(|address| writer.record(&event(Kind::Alloc, address, 1)));
    for format in ["text", "json"] {
        let mut command = gpushim(dir.path(), &["events", "--format", format, "a.trace"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut some = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (Some(0), ""),
            "{format}"
        );
    }
}

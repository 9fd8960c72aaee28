//! Subcommands that find faults in a run, and their output for hostile files.

use super::*;

/// The subcommands that read recordings.
const READERS: [&str; 12] = [
    "report",
    "events",
    "doctor",
    "growth",
    "peak",
    "phases",
    "oom",
    "fragmentation",
    "timeline",
    "top",
    "replay",
    "tune",
];

#[test]
fn hostile_files_give_a_sentence_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(sample(&dir.path().join("sound"))).unwrap();
    let write =
        |name: &str, content: &[u8]| std::fs::write(dir.path().join(name), content).unwrap();
    write("empty", b"");
    write("text", &b"op,ptr,size\n".repeat(1000));
    write("zeros", &[0; 100_000]);
    write("magic", b"gpushim\0");
    write("header", &whole[..2000]);
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    for name in [
        "empty", "text", "zeros", "magic", "header", "folder", "missing",
    ] {
        for args in READERS.map(|command| [command, name]) {
            let output = run(dir.path(), &args);
            assert_eq!(
                output.status.code(),
                Some(2),
                "{args:?}: {}",
                stderr(&output)
            );
            let line = stderr(&output);
            assert!(
                line.starts_with("gpushim: failed to read the trace "),
                "{args:?}: {line}"
            );
            assert_eq!(
                (line.lines().count(), output.stdout.len()),
                (1, 0),
                "{args:?}: {line}"
            );
        }
    }
    // Readable in part: the readable part is shown, with a note.
    write("cut", &whole[..whole.len() - 65_000]);
    let mut torn = whole.clone();
    torn[300..340].fill(0xff);
    write("directory", &torn);
    let mut noisy = whole.clone();
    for (at, byte) in noisy.iter_mut().enumerate().skip(8192) {
        *byte ^= (at as u8).wrapping_mul(37);
    }
    write("noise", &noisy);
    for name in ["cut", "directory", "noise"] {
        for args in READERS.map(|command| [command, name]) {
            let begin = Instant::now();
            let output = run(dir.path(), &args);
            assert!(
                matches!(output.status.code(), Some(0..=2)),
                "{args:?}: {:?} {}",
                output.status,
                stderr(&output)
            );
            assert!(!output.stdout.is_empty());
            assert!(!stderr(&output).contains("panicked"));
            // It comes to an end, on a busy machine too.
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
    }
    let cut = stdout(&run(dir.path(), &["report", "cut"]));
    assert!(cut.contains("damage     the file is cut off: "), "{cut}");
    // One bad file does not keep the good one from being reported.
    let both = run(dir.path(), &["report", "text", "sound"]);
    assert_eq!(both.status.code(), Some(2));
    assert!(stdout(&both).contains("8 recorded"));
}

#[test]
fn a_trace_without_stacks_has_no_names_to_attach() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(&dir.path().join("a.trace"));
    let output = run(dir.path(), &["pack", trace.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).ends_with(" on disk\n"),
        "{}",
        stdout(&output)
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let output = run(dir.path(), &["pack", "missing.trace"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn findings_of_a_small_run() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("run.trace"));
    let output = run(
        dir.path(),
        &["peak", "run.trace", "--of", "memory", "--format", "json"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let peak = &json(&output)["results"][0];
    let report = json(&run(
        dir.path(),
        &["report", "run.trace", "--format", "json"],
    ));
    let requested = &report["results"][0]["summary"]["devices"][0]["requested"];
    assert_eq!(
        (&peak["bytes"], &peak["ns"]),
        (&requested["peak"], &requested["peak_ns"])
    );
    let end = json(&run(
        dir.path(),
        &[
            "peak",
            "--of",
            "memory",
            "run.trace",
            "--at",
            "end",
            "--format",
            "json",
        ],
    ));
    assert_eq!(end["results"][0]["bytes"], requested["end"]);
    // Out of memory is the subject of the command: exit code 1, and the figures of the event.
    let output = run(dir.path(), &["oom", "run.trace", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let shortage = &json(&output)["results"][0]["shortages"][0];
    assert_eq!(
        shortage["size"],
        report["results"][0]["summary"]["out_of_memory"][0]["size"]
    );
    let text = stdout(&run(dir.path(), &["growth", "run.trace"]));
    assert!(
        text.contains("Whether memory grows is not seen: nothing comes again"),
        "{text}"
    );
    let output = run(dir.path(), &["peak", "--at", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected seconds like 12.5, or end"));
}

#[test]
fn views_of_a_small_run() {
    let dir = tempfile::tempdir().unwrap();
    at_fixed_times(&sample(&dir.path().join("run.trace")), 8);
    let text = |args: &[&str]| {
        let output = run(dir.path(), args);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{args:?}: {}",
            stderr(&output)
        );
        stdout(&output)
    };
    let of = ["fragmentation", "run.trace", "--of", "memory"];
    insta::assert_snapshot!(printed(dir.path(), &of, 0), @"
    run.trace: device memory
    At 3.0 ms, when most was reserved
    Not fragmented: 0 B (0.0 %) of the 4.0 MiB that are reserved lie free beside blocks.

    gpu  reserved  allocated  requested  free, whole  free beside blocks       pinned  largest free
      0   4.0 MiB    4.0 MiB    3.0 MiB          0 B         0 B (0.0 %)  0 B (0.0 %)           0 B

    address     size     in use  how full, from · empty to █ full
    0x1000   2.0 MiB    100.0 %  ████████████████████████████████████████████████
    0x2000   2.0 MiB    100.0 %  ████████████████████████████████████████████████
    ");
    let found = text(&[
        "fragmentation",
        "run.trace",
        "--at",
        "0",
        "--format",
        "json",
    ]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["results"][0]["is_peak"], false);
    let wide = printed(dir.path(), &["timeline", "run.trace", "--width", "60"], 0);
    insta::assert_snapshot!(wide, @"
    run.trace

    gpu 0: █ tensors, ▓ at times, ░ reserved by the framework
       2.0 MiB ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
       1.7 MiB ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
               ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
               ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
               ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
       1.1 MiB ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
               ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
               ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
               ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
     585.1 KiB ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
               ┤                     ░░░░░░░░░░░░░░░░░░░░░░░░░░░
               ┤                     ███████████████████████████
               ┤                     ███████████████████████████
               ┤                     ███████████████████████████
             0 └────────────────────────────────────────────────
                0 s               3.5 ms                  7.0 ms

                                    most      at
    tensors                    512.0 KiB  3.1 ms
    reserved by the framework    2.0 MiB  3.1 ms
    requested                    3.0 MiB  2.1 ms
    allocated                    4.0 MiB  2.1 ms
    reserved                     4.0 MiB  1.0 ms
    ");
    let longest = wide.lines().map(|line| line.chars().count()).max();
    assert_eq!(longest, Some(60), "{wide}");
    let found = text(&["timeline", "run.trace", "--format", "json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    let curves = &found["results"][0]["devices"][0]["curves"];
    assert_eq!(curves[0]["peak"], MIB / 2, "{found:#}");
    for of in ["live", "allocated"] {
        let found = text(&["export", "--to", "folded", "--of", of, "run.trace"]);
        assert_eq!(found, "(no stack) 524288\n", "{of}");
    }
}

/// A snapshot without a history has the live blocks, but no requests over time.
#[test]
fn what_a_snapshot_without_a_history_allows() {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = include_bytes!("../data/no_history.pickle.gz");
    std::fs::write(dir.path().join("a.pickle.gz"), snapshot).unwrap();
    let both = printed(dir.path(), &["tune", "a.pickle.gz"], 2)
        + &printed(dir.path(), &["replay", "a.pickle.gz"], 0);
    insta::assert_snapshot!(both, @"
    gpushim: a.pickle.gz: it has no history, only what was there at its end: call torch.cuda.memory._record_memory_history() before what is to be seen
    gpushim: failed to recommend settings from a.pickle.gz: it says what was live, but has no history of requests (record one, for a snapshot with torch.cuda.memory._record_memory_history())
    a.pickle.gz: tensors
    gpu 1: 179 requests, at most 519.2 MiB live; 5.2 GiB were held when it was recorded
      179 blocks were made before the recording began: they are the first requests
      there is no history of requests: each policy holds what was live, requested once
    policy                 held    used  driver calls  driver time  largest free: least, median  out of memory  allocator
    vmm               522.0 MiB  99.5 %           441       4.7 ms          1017.0 KiB, 1.7 MiB                 gpushim, by default
    blocks            522.0 MiB  99.5 %           441       4.7 ms          1017.0 KiB, 1.7 MiB                 gpushim
    torch               5.2 GiB   9.8 %             0         0 ns             3.1 GiB, 3.1 GiB                 PyTorch's allocator
    torch-expandable  534.0 MiB  97.2 %            92     926.3 µs         250.0 KiB, 920.5 KiB                 PyTorch's with expandable_segments
    torch-elastic     522.0 MiB  99.5 %           448       3.4 ms         250.0 KiB, 920.5 KiB                 PyTorch's, expandable and elastic (GPUSHIM_ELASTIC)
    rmm-pool          544.9 MiB  95.3 %            11     405.9 µs               0 B, 940.0 KiB                 RMM's pool, without initial size
    rmm-arena          39.6 GiB   1.3 %             1       4.0 ms           39.1 GiB, 39.6 GiB                 RMM's arenas, half of the device at once
    bfc                 1.0 GiB  50.4 %             8     351.7 µs                 0 B, 3.9 MiB                 TensorFlow's and XLA's BFC, growing
    gpushim: a.pickle.gz: it has no history, only what was there at its end: call torch.cuda.memory._record_memory_history() before what is to be seen
    ");
    // The moment is after the beginning, at which the segments exist already and their blocks not
    // yet.
    let report = result(&run(
        dir.path(),
        &["report", "a.pickle.gz", "--format", "json"],
    ));
    let tensors = &report["summary"]["devices"][0]["tensors"];
    let args = ["fragmentation", "a.pickle.gz", "--format", "json"];
    let found = result(&run(dir.path(), &args));
    let room = &found["devices"][0];
    assert_eq!(room["requested"], tensors["tensors"]["peak"]);
    assert_eq!(room["reserved"], tensors["reserved_end"]);
}

/// It holds one moment. Each command says so in a sentence, and none mentions repeats.
#[test]
fn a_snapshot_without_a_history_is_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = include_bytes!("../data/no_history.pickle.gz");
    std::fs::write(dir.path().join("a.pickle.gz"), snapshot).unwrap();
    let mut all = String::new();
    for command in ["growth", "phases", "oom", "report", "peak"] {
        let text = printed(dir.path(), &[command, "a.pickle.gz"], 0);
        for word in ["repeats", "iterations", "unknown on unknown", "1970"] {
            let table = text.find(" held ").unwrap_or(text.len());
            assert!(!text[..table].contains(word), "{command}: {word}: {text}");
        }
        all += &format!("$ gpushim {command} a.pickle.gz\n{text}\n");
    }
    insta::assert_snapshot!(all);
    let check = printed(dir.path(), &["check", "--no-leaks", "a.pickle.gz"], 0);
    insta::assert_snapshot!(check, @"
    a.pickle.gz
      ?     leaks: not told: this snapshot holds one moment and has no history
    gpushim: a.pickle.gz: it has no history, only what was there at its end: call torch.cuda.memory._record_memory_history() before what is to be seen
    ");
}

/// A list of twenty steps, and a block of 64 MiB that stays.
///
/// Odd and even steps each allocate their sizes, in MiB, and free them.
fn twenty_steps(sizes: [&[u64]; 2]) -> String {
    use std::fmt::Write;

    let mut list = format!(
        "op,ptr,size,stream,thread,time_ns\nalloc,0x1000000000,{},0,1,0\n",
        64 * MIB
    );
    for step in 1..=20_u64 {
        let ns = step * 100_000_000;
        for (op, ns) in [("alloc", ns), ("free", ns + 50_000_000)] {
            for (at, size) in (0_u64..).zip(sizes[step as usize % 2]) {
                let (address, bytes) = ((16 + step) << 36 | at << 30, size * MIB);
                writeln!(list, "{op},{address:#x},{bytes},0,1,{ns}").unwrap();
            }
        }
    }
    list
}

/// PyTorch's own allocator serves these with no more than is live.
#[test]
fn tune_advises_no_change_that_is_not_worth_it() {
    let dir = tempfile::tempdir().unwrap();
    let list = twenty_steps([&[64], &[128]]);
    std::fs::write(dir.path().join("steps.csv"), list).unwrap();
    let output = run(dir.path(), &["tune", "steps.csv", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = result(&output);
    let advice = &found["advice"];
    assert_eq!(advice["environment"], serde_json::json!({}));
    assert_eq!(
        (&advice["line"], &advice["smallest_limit"]),
        (&"".into(), &Value::Null)
    );
    let keep = advice["keep"].as_str().unwrap();
    assert!(
        keep.starts_with("Stay with PyTorch's own allocator"),
        "{keep}"
    );
    let text = stdout(&run(dir.path(), &["tune", "steps.csv"]));
    assert!(text.contains(keep) && !text.contains("advised"), "{text}");
}

#[test]
fn tune_advises_what_to_set() {
    let dir = tempfile::tempdir().unwrap();
    // PyTorch's allocator keeps two segments of 64 MiB beside one of 128 MiB.
    let list = twenty_steps([&[128], &[64, 64]]);
    std::fs::write(dir.path().join("steps.csv"), list).unwrap();
    let output = run(dir.path(), &["tune", "steps.csv", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = result(&output);
    let advice = &found["advice"];
    assert_eq!(
        advice["environment"],
        serde_json::json!({"GPUSHIM_PAGE": "16M"})
    );
    assert_eq!(advice["line"], "GPUSHIM_PAGE=16M");
    assert_eq!(advice["peak_reserved"], 192 * MIB);
    assert_eq!(advice["utilization"], 1.0);
    assert_eq!(advice["saves"]["than"], "torch");
    assert_eq!(found["not_tried"], 0);
    let front = found["front"].as_array().unwrap();
    let is_advised = |row: &&Value| row["is_advised"] == true;
    assert_eq!(front.iter().filter(is_advised).count(), 1, "{front:?}");
    assert_eq!(
        // Without stacks, supposed iterations are never sure.
        found["confidence"]["level"],
        "fairly-sure",
        "{}",
        found["confidence"]
    );

    insta::assert_snapshot!(printed(dir.path(), &["tune", "steps.csv"], 0), @"
    steps.csv: device memory
    gpu 0: 61 requests, at most 192.0 MiB live

    policy                  held  of the device     used  driver calls  driver time  after the start  per iteration
    vmm, pages of 16M  192.0 MiB      192.0 MiB  100.0 %             9     104.2 µs            0.0 %           0 ns  advised
    vmm                192.0 MiB      192.0 MiB  100.0 %           144       1.5 ms            0.0 %           0 ns  the default

    Advice: the least memory (0.5 % more counts as the same), then the least time (5 % more counts as the same), then the fewest changes, among those whose driver calls take at most 2 % of the run after its start, or the least time if none does.

      GPUSHIM_PAGE=16M

    It would have held 192.0 MiB at most, 128.0 MiB (40.0 %) less than with PyTorch's allocator; GPUSHIM_LIMIT=192M would have been enough. Its driver calls take 104.2 µs, 51.0 µs less than with PyTorch's allocator.
    The least memory in which the run still fits: 192.0 MiB with vmm, pages of 16M, 194.0 MiB with torch, 200.0 MiB with torch-expandable.
    Fairly sure: chosen by the first half of the iterations, it is best in the second, too; the peak differs by 0.0 % from the one predicted, where what the program asks for differs by 0.0 %.
    ");
    let fits = stdout(&run(dir.path(), &["tune", "steps.csv", "--limit", "200M"]));
    assert!(fits.contains("All of them fit into 200.0 MiB."), "{fits}");
    let limit = ["tune", "steps.csv", "--limit", "100M"];
    insta::assert_snapshot!(printed(dir.path(), &limit, 1), @"
    steps.csv: device memory
    gpu 0: 61 requests, at most 192.0 MiB live
    Nothing fits into 100.0 MiB. Closest is vmm, which refuses 30 requests; it needs 192.0 MiB.
    ");
    let late = stdout(&run(dir.path(), &["tune", "steps.csv", "--seconds", "0"]));
    assert!(late.contains("There was no time to try anything"), "{late}");
    let wrong = run(dir.path(), &["tune", "steps.csv", "--within", "200"]);
    assert_eq!(wrong.status.code(), Some(2));
    // One advice for the readable recordings.
    let some = run(dir.path(), &["tune", "steps.csv", "missing.csv"]);
    assert_eq!(some.status.code(), Some(2));
    assert!(stdout(&some).contains("GPUSHIM_PAGE=16M"));
}

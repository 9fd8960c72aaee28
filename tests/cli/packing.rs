//! `pack`, and the results of other subcommands for its files.

use super::*;

/// First bytes of a packed file.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_packed_trace_answers_as_before_and_takes_less() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let answer = |name: &str, command: &str| {
        let output = run(dir.path(), &[command, name, "--format", "json"]);
        stdout(&output).replace(name, "NAME")
    };
    let commands = ["report", "peak", "oom", "events"];
    let before = commands.map(|command| answer("a.trace", command));
    let output = run(dir.path(), &["pack", "a.trace"]);
    // The writer of the trace was this process, which has unmapped it.
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(0), "")
    );
    assert!(
        stdout(&output).starts_with("a.trace  "),
        "{}",
        stdout(&output)
    );
    assert_eq!(files_in(dir.path()), ["a.trace"]);
    let size = || dir.path().join("a.trace").metadata().unwrap().len();
    let packed = size();
    assert!(packed < 100 << 10, "{packed} bytes");
    assert_eq!(commands.map(|command| answer("a.trace", command)), before);
    let file = std::fs::File::open(dir.path().join("a.trace")).unwrap();
    let summary = gpushim_trace::attached::read(&file, gpushim_trace::attached::Attached::Summary);
    assert!(
        summary
            .unwrap()
            .unwrap()
            .starts_with(b"{\"gpushim_summary\":1")
    );
    // Once more: nothing to do, and nothing lost.
    let again = run(dir.path(), &["pack", "a.trace"]);
    let said = stderr(&again);
    assert_eq!(again.status.code(), Some(0), "{said}");
    assert_eq!(said, "gpushim: a.trace is packed already\n");
    assert_eq!(size(), packed);
}

#[test]
fn nothing_is_lost_where_it_cannot_be_packed() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let kept = std::fs::read(dir.path().join("a.trace")).unwrap();
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let gzip = [gzip].map(|mut gzip| {
        std::io::Write::write_all(&mut gzip, &kept).unwrap();
        gzip.finish().unwrap()
    });
    std::fs::write(dir.path().join("a.trace.gz"), &gzip[0]).unwrap();
    let output = run(dir.path(), &["pack", "a.trace.gz"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("is compressed by gzip: not packed"),
        "{}",
        stderr(&output)
    );
    let left = std::fs::read(dir.path().join("a.trace.gz")).unwrap();
    assert_eq!(left, gzip[0]);
    std::fs::write(dir.path().join("no.trace"), "no trace").unwrap();
    assert_eq!(
        run(dir.path(), &["pack", "no.trace"]).status.code(),
        Some(2)
    );
    // One that is being written.
    let path = dir.path().join("open.trace");
    let writer = Writer::create(&path, &WriterOptions::default()).unwrap();
    writer.record(&event(Kind::Alloc, 0x1000, MIB));
    let output = run(dir.path(), &["pack", "open.trace"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("still runs: not packed"),
        "{}",
        stderr(&output)
    );
    let content = || std::fs::read(&path).unwrap();
    assert!(content().starts_with(b"gpushim\0"));
    drop(writer);
    let kept = run(dir.path(), &["pack", "open.trace"]);
    assert_eq!(kept.status.code(), Some(0), "{}", stderr(&kept));
    assert!(content().starts_with(&ZSTD));
}

/// A program that leaves a trace of this host and process numbers, of more than a mebibyte on the
/// disk.
fn large_sample(path: &Path) {
    let writer = Writer::create(path, &WriterOptions::default()).unwrap();
    for address in 0..40_000 {
        writer.record(&event(Kind::Alloc, 0x1000 + (address << 12), MIB));
    }
}

#[test]
fn run_leaves_a_compressed_trace_of_the_same_name_and_content() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    large_sample(&source);
    let content = std::fs::read(&source).unwrap();
    let run_it = |options: &[&str], name: &str| {
        let trace = dir.path().join(name);
        let script = format!("cp --sparse=always source {name}");
        let words = [
            &["run", "--trace", name][..],
            options,
            &["--", "sh", "-c", &script],
        ]
        .concat();
        let output = gpushim(dir.path(), &words)
            .env("GPUSHIM_LIBRARY", harmless_library())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        std::fs::read(trace).unwrap()
    };
    assert!(run_it(&["--no-pack", "--no-summary"], "raw.trace") == content);
    let summed_up = run_it(&["--no-pack"], "summed-up.trace");
    assert!(summed_up.len() > content.len() && summed_up.starts_with(&content));
    for options in [&[][..], &["--quiet"]] {
        let name = format!("packed{}.trace", options.len());
        let packed = run_it(options, &name);
        assert!(
            packed.starts_with(&ZSTD) && packed.len() < 1 << 20,
            "{}",
            packed.len()
        );
        // As any program of zstd unpacks it: what is attached is skipped.
        let unpacked = zstd::stream::decode_all(&packed[..]).unwrap();
        assert!(unpacked == content, "what it unpacks to");
        let report = |name: &str| {
            let output = run(dir.path(), &["report", name, "--format", "json"]);
            stdout(&output).replace(name, "NAME")
        };
        assert_eq!(report(&name), report("raw.trace"));
    }
    let left = std::fs::read_dir(dir.path()).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().contains("unfinished"));
    assert_eq!(left.count(), 0);
}

#[test]
fn run_compresses_no_trace_of_another_machine_or_of_a_living_process() {
    let dir = tempfile::tempdir().unwrap();
    large_sample(&dir.path().join("source"));
    let content = std::fs::read(dir.path().join("source")).unwrap();
    // The same trace with one character of a fact changed.
    let strange = |name: &str, key: &str| {
        let mut other = content.clone();
        let fact = format!("\n{key}\t").into_bytes();
        let head = &other[..1 << 20];
        let at = head
            .windows(fact.len())
            .position(|here| here == fact)
            .unwrap();
        other[at + fact.len()] = b'!';
        std::fs::write(dir.path().join(name), other).unwrap();
    };
    strange("source-host", "host");
    strange("source-namespace", "pid-namespace");
    for name in ["source-host", "source-namespace"] {
        let script = format!("cp {name} {name}.trace");
        let output = gpushim(
            dir.path(),
            &[
                "run",
                "--trace",
                &format!("{name}.trace"),
                "--",
                "sh",
                "-c",
                &script,
            ],
        )
        .env("GPUSHIM_LIBRARY", harmless_library())
        .output()
        .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let kept = std::fs::read(dir.path().join(format!("{name}.trace"))).unwrap();
        assert!(
            kept == std::fs::read(dir.path().join(name)).unwrap(),
            "{name}"
        );
    }
    // A trace of a running program, whose process continues here.
    let path = dir.path().join("live.trace");
    let mut child = gpushim(
        dir.path(),
        &[
            "run",
            "--trace",
            "live.trace",
            "--",
            "sh",
            "-c",
            "echo; read line; true",
        ],
    )
    .env("GPUSHIM_LIBRARY", harmless_library())
    .stdin(std::process::Stdio::piped())
    .stdout(std::process::Stdio::piped())
    .spawn()
    .unwrap();
    let mut started = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut started).unwrap();
    let writer = Writer::create(&path, &WriterOptions::default()).unwrap();
    for address in 0..40_000 {
        writer.record(&event(Kind::Alloc, 0x1000 + (address << 12), MIB));
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(std::fs::read(&path).unwrap().starts_with(b"gpushim\0"));
    drop(writer);
}

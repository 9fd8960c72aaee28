//! `pack`, and the answers of what it wrote.

use super::*;

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
        stdout(&output).starts_with("a.trace.gz  "),
        "{}",
        stdout(&output)
    );
    assert!(!dir.path().join("a.trace").exists());
    let packed = dir.path().join("a.trace.gz").metadata().unwrap().len();
    assert!(packed < 100 << 10, "{packed} bytes");
    assert_eq!(
        commands.map(|command| answer("a.trace.gz", command)),
        before
    );
    let folder = run(dir.path(), &["report", ".", "--format", "json"]);
    assert_eq!(json(&folder)["results"].as_array().unwrap().len(), 1);
}

#[test]
fn nothing_is_lost_where_it_cannot_be_packed() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let kept = std::fs::read(dir.path().join("a.trace")).unwrap();
    std::fs::write(dir.path().join("a.trace.gz"), "mine").unwrap();
    let output = run(dir.path(), &["pack", "a.trace"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("a.trace.gz is there already"),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        std::fs::read(dir.path().join("a.trace.gz")).unwrap(),
        b"mine"
    );
    assert_eq!(std::fs::read(dir.path().join("a.trace")).unwrap(), kept);
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
    assert!(path.exists() && !dir.path().join("open.trace.gz").exists());
    drop(writer);
    let kept = run(dir.path(), &["pack", "--keep", "open.trace"]);
    assert_eq!(kept.status.code(), Some(0), "{}", stderr(&kept));
    assert!(path.exists() && dir.path().join("open.trace.gz").exists());
}

//! Files that older versions of gpushim wrote, and files of versions to come (`docs/compatibility.md`).

use super::*;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

/// A folder with the recording of both files.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["trace", "trace.spool"] {
        let from = format!("{DATA}/reports/32_failed_batches.{name}");
        std::fs::copy(from, dir.path().join(format!("run.{name}"))).unwrap();
    }
    dir
}

#[test]
fn a_baseline_of_each_version_is_read() {
    let dir = folder();
    let text = std::fs::read_to_string(format!("{DATA}/baseline-1.toml")).unwrap();
    let check = |text: &str| {
        std::fs::write(dir.path().join("of.toml"), text).unwrap();
        run(dir.path(), &["check", "--baseline", "of.toml", "run.trace"])
    };
    let output = check(&text);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("241.0 MiB, as in the baseline"));
    let output = check(&text.replace("version = 1", "version = 2"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("it is of version 2, not 1"));
}

#[test]
fn a_summary_of_each_version_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(format!("{DATA}/summary-1.json")).unwrap();
    let report = |text: &str| {
        std::fs::write(dir.path().join("run.trace.summary"), text).unwrap();
        run(dir.path(), &["report", "--format", "json", "."])
    };
    let output = report(&text);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let peak = &json(&output)["jobs"][0]["totals"]["peak"]["sum"];
    assert_eq!(peak.as_u64(), Some(252_728_320));
    let later = text.replace("\"gpushim_summary\":1", "\"gpushim_summary\":2");
    assert_ne!(later, text);
    let output = report(&later);
    assert_eq!(output.status.code(), Some(2));
    let said = stdout(&output);
    assert!(
        said.contains("it is of version 2, and this command knows version 1"),
        "{said}"
    );
}

/// Events and named functions of a recording, as `peak` and `report` find them.
fn told(dir: &Path, name: &str) -> (u64, bool) {
    let report = run(dir, &["report", "--format", "json", name]);
    assert_eq!(stderr(&report), "");
    let events = &json(&report)["results"][0]["summary"]["events"]["readable"];
    let peak = stdout(&run(dir, &["peak", name]));
    let is_named = peak.contains("allocate") && peak.contains("program.h:138");
    (events.as_u64().unwrap(), is_named)
}

#[test]
fn a_trace_of_the_form_with_three_files_beside_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    for end in [".gz", ".spool", ".summary", ".symbols"] {
        let name = format!("three-files.trace{end}");
        std::fs::copy(format!("{DATA}/{name}"), dir.path().join(name)).unwrap();
    }
    assert_eq!(told(dir.path(), "three-files.trace.gz"), (2021, true));
    let packed = std::fs::File::open(dir.path().join("three-files.trace.gz")).unwrap();
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut plain).unwrap();
    std::fs::remove_file(dir.path().join("three-files.trace.gz")).unwrap();
    std::fs::write(dir.path().join("three-files.trace"), plain).unwrap();
    assert_eq!(told(dir.path(), "three-files.trace"), (2021, true));
    // The summary alone.
    std::fs::remove_file(dir.path().join("three-files.trace")).unwrap();
    let output = run(dir.path(), &["report", "--format", "json", "."]);
    let peak = &json(&output)["jobs"][0]["totals"]["peak"]["sum"];
    assert!(peak.as_u64() > Some(33 << 20), "{peak}");
    // Without its files a trace has the events of its ring, and no names.
    let alone = format!("{DATA}/three-files.trace.gz");
    std::fs::copy(alone, dir.path().join("alone.trace.gz")).unwrap();
    assert_eq!(told(dir.path(), "alone.trace.gz"), (1023, false));
}

#[test]
fn a_packed_trace_with_all_that_is_attached_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("packed.trace");
    std::fs::copy(format!("{DATA}/packed-1.trace"), &path).unwrap();
    assert_eq!(told(dir.path(), "packed.trace"), (2021, true));
    let file = std::fs::File::open(&path).unwrap();
    let summary = gpushim_trace::attached::read(&file, gpushim_trace::attached::Attached::Summary);
    let summary: serde_json::Value = serde_json::from_slice(&summary.unwrap().unwrap()).unwrap();
    assert_eq!(summary["events"]["recorded"], 2021);
}

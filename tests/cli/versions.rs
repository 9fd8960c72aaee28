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

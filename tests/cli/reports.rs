use super::*;

/// Programs after public reports, recorded on an H100 (tests/gpu/reports). The command's findings
/// for each are true.
#[test]
fn programs_after_public_reports_are_judged_rightly() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let judged = Command::new("python3")
        .arg(root.join("tests/gpu/reports/judge.py"))
        .arg(env!("CARGO_BIN_EXE_gpushim"))
        .arg(root.join("tests/data/reports"))
        .output()
        .expect("python3");
    let text = String::from_utf8_lossy(&judged.stdout);
    assert!(
        judged.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&judged.stderr)
    );
    assert!(text.contains("18 of 18"), "{text}");
}

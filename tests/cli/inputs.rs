//! Recordings in each form of input: compressed, from standard input, in pages of a viewer.

use std::fs::File;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// The commands that read any recording.
const COMMANDS: [&str; 8] = [
    "report",
    "growth",
    "peak",
    "oom",
    "phases",
    "timeline",
    "fragmentation",
    "events",
];

fn packed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn run(dir: &Path, args: &[&str], input: Option<&Path>) -> Output {
    let mut command = gpushim(dir, args);
    match input {
        Some(path) => command.stdin(File::open(path).unwrap()),
        None => command.stdin(Stdio::null()),
    };
    command.output().unwrap()
}

fn data(name: &str) -> Vec<u8> {
    std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(name),
    )
    .unwrap()
}

#[test]
fn every_command_reads_compressed_traces_and_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    sample(&dir.join("a.trace"));
    let whole = std::fs::read(dir.join("a.trace")).unwrap();
    std::fs::write(dir.join("a.trace.gz"), packed(&whole)).unwrap();
    for command in COMMANDS {
        let plain = run(dir, &[command, "a.trace"], None);
        assert!(
            matches!(plain.status.code(), Some(0 | 1)),
            "{command}: {}",
            stderr(&plain)
        );
        for (name, input) in [
            ("a.trace.gz", None),
            ("-", Some("a.trace")),
            ("-", Some("a.trace.gz")),
        ] {
            let input = input.map(|input| dir.join(input));
            let output = run(dir, &[command, name], input.as_deref());
            assert_eq!(
                output.status.code(),
                plain.status.code(),
                "{command} {name}: {}",
                stderr(&output)
            );
            let (text, plain) = (stdout(&output), stdout(&plain).replace("a.trace", name));
            let same = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(same(&text), same(&plain), "{command} {name}");
        }
    }
}

#[test]
fn doctor_reads_compressed_traces_and_top_refuses_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    sample(&dir.join("a.trace"));
    let whole = std::fs::read(dir.join("a.trace")).unwrap();
    std::fs::write(dir.join("b.trace.gz"), packed(&whole)).unwrap();
    let plain = run(dir, &["doctor", "a.trace"], None);
    let output = run(dir, &["doctor", "b.trace.gz"], None);
    assert_eq!(
        output.status.code(),
        plain.status.code(),
        "{}",
        stderr(&output)
    );
    let same = stdout(&output).replace("b.trace.gz", "a.trace");
    assert_eq!(same, stdout(&plain));
    std::fs::write(dir.join("c.gz"), packed(b"notes")).unwrap();
    let output = run(dir, &["doctor", "c.gz"], None);
    assert_eq!(output.status.code(), Some(2));
    let says = "failed to read the trace c.gz: what is compressed there is no trace of gpushim";
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
    let output = run(dir, &["top", "--once", "b.trace.gz"], None);
    assert_eq!(output.status.code(), Some(2));
    let says = "failed to follow b.trace.gz: it is compressed, so no process writes it";
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
}

#[test]
fn standard_input_takes_snapshots_and_logs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("a.pickle.gz"), data("training.pickle.gz")).unwrap();
    let log = b"op,ptr,size,stream,thread,time_ns\nalloc,0x1000,64,-,0,0\n";
    std::fs::write(dir.join("a.csv"), log).unwrap();
    for (file, says) in [("a.pickle.gz", "tensors"), ("a.csv", "64 B")] {
        let output = run(dir, &["peak", "-"], Some(&dir.join(file)));
        assert!(
            stdout(&output).contains(says),
            "{file}: {}{}",
            stdout(&output),
            stderr(&output)
        );
    }
    let output = run(dir, &["peak", "-"], None);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).ends_with("-: it is empty\n"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_page_of_the_viewer_is_a_snapshot() {
    use base64::Engine;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut pickle = Vec::new();
    std::io::Read::read_to_end(
        &mut flate2::read::MultiGzDecoder::new(&data("training.pickle.gz")[..]),
        &mut pickle,
    )
    .unwrap();
    std::fs::write(dir.join("a.pickle"), &pickle).unwrap();
    let text = base64::engine::general_purpose::STANDARD.encode(&pickle);
    let page = format!(
        "\n<!DOCTYPE html>\n<html>\n<script type=\"module\">\nconst local_files = [{{\"name\": \"s.pickle\", \
         \"base64\": \"{text}\"}}]\nadd_local_files(local_files, 'Active Memory Timeline')\n</script>\n"
    );
    std::fs::write(dir.join("a.html"), &page).unwrap();
    std::fs::write(dir.join("b.html.gz"), packed(page.as_bytes())).unwrap();
    let plain = stdout(&run(dir, &["peak", "a.pickle"], None));
    for name in ["a.html", "b.html.gz"] {
        let output = run(dir, &["peak", name], None);
        assert_eq!(
            stdout(&output).replace(name, "a.pickle"),
            plain,
            "{}",
            stderr(&output)
        );
    }
    // Data after the cut is lost, data before it is read.
    std::fs::write(dir.join("cut.html"), &page[..page.len() * 3 / 4]).unwrap();
    let output = run(dir, &["peak", "cut.html"], None);
    assert!(
        matches!(output.status.code(), Some(0..=2)),
        "{}",
        stderr(&output)
    );
    assert!(!stderr(&output).is_empty());
    std::fs::write(dir.join("none.html"), "<!DOCTYPE html><p>nothing").unwrap();
    let output = run(dir, &["peak", "none.html"], None);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("without a snapshot in it"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn damaged_and_hostile_archives() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    sample(&dir.join("a.trace"));
    let mut whole = std::fs::read(dir.join("a.trace")).unwrap();
    let all = packed(&whole);
    std::fs::write(dir.join("cut.gz"), &all[..all.len() - 9]).unwrap();
    let output = run(dir, &["report", "cut.gz"], None);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stdout(&output) + &stderr(&output);
    assert!(said.contains("cannot be read beyond byte"), "{said}");
    // A bomb: a trace of its kind, and then more ones than any trace has.
    whole.truncate(64 << 10);
    whole.resize(200 << 20, 1);
    std::fs::write(dir.join("bomb.gz"), packed(&whole)).unwrap();
    let output = run(dir, &["report", "bomb.gz"], None);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("unpacks to more"),
        "{}",
        stderr(&output)
    );
}

//! Snapshots that come to far more than they take in their files.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::bounded::gpushim;

/// Limit of address space for each of these files, in MiB. It is more than the memory in use.
const MIB: u64 = 512;
/// And so long, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Encodes a text for a pickle.
pub fn text(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("short");
    [b"X", &length.to_le_bytes()[..], text.as_bytes()].concat()
}

/// Encodes a number for a pickle.
pub fn number(number: i32) -> Vec<u8> {
    [b"J", &number.to_le_bytes()[..]].concat()
}

/// The text that was remembered first.
pub const SHARED: &[u8] = b"h\x00";

/// A dict of these keys and values.
pub fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries = entries.iter();
    let entries: Vec<u8> = entries
        .flat_map(|(key, value)| [text(key), value.clone()].concat())
        .collect();
    [b"}(", &entries[..], b"u"].concat()
}

/// Encodes a list of encoded items.
pub fn list(items: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let items: Vec<u8> = items.into_iter().flatten().collect();
    [b"](", &items[..], b"e"].concat()
}

/// A snapshot that remembers a text and has this history of one device and these annotations.
pub fn snapshot(shared: &str, entries: Vec<u8>, annotations: Vec<u8>) -> Vec<u8> {
    let whole = dict(&[
        ("device_traces", list([entries])),
        ("segments", list([])),
        ("external_annotations", annotations),
    ]);
    [b"\x80\x04", &text(shared)[..], b"q\x000", &whole, b"."].concat()
}

/// An allocation with more keys.
pub fn alloc(at: i32, more: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entry = [
        ("action", text("alloc")),
        ("addr", number(512 * at + 512)),
        ("size", number(512)),
        ("time_us", number(at)),
    ];
    dict(&[&entry[..], more].concat())
}

fn reads(content: &[u8], code: i32, says: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("bomb"), content).expect("written");
    for args in [&["report", "bomb"][..], &["export", "--to", "json", "bomb"]] {
        let ran = gpushim(folder.path(), args, MIB, LIMIT);
        let text = ran.text();
        assert_eq!(ran.code, Some(code), "{args:?}: {text:.1000}");
        assert!(text.contains(says), "{args:?}: {text:.1000}");
    }
}

fn packed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).expect("packed");
    encoder.finish().expect("packed")
}

#[test]
fn lists_without_end() {
    let brackets = [&b"\x80\x04"[..], &vec![b']'; 65 << 20], b"."].concat();
    let bomb = packed(&brackets);
    assert!(bomb.len() < 70_000);
    reads(&bomb, 2, "it wants more memory than a snapshot of");
}

#[test]
fn an_empty_list_is_no_snapshot() {
    reads(b"\x80\x04].", 2, "no PyTorch memory snapshot");
}

#[test]
fn one_long_name_for_thousands() {
    let name = "A".repeat(1 << 20);
    let annotation = |at: i32| {
        dict(&[
            ("name", SHARED.to_vec()),
            ("stage", text("START")),
            ("device", number(0)),
            ("time_us", number(at)),
        ])
    };
    let annotations = list((0..8000).map(annotation));
    reads(&snapshot(&name, list([]), annotations), 0, "");
    let frame = |at: i32| {
        dict(&[
            ("name", SHARED.to_vec()),
            ("filename", text("f.py")),
            ("line", number(at)),
        ])
    };
    let calls = |at: i32| alloc(at, &[("frames", list([frame(at)]))]);
    let functions = list((0..3000).map(calls));
    reads(&snapshot(&name, functions, list([])), 0, "AAA");
    let labelled = |at: i32| alloc(at, &[("user_metadata", SHARED.to_vec())]);
    let labels = list((0..50_000).map(labelled));
    reads(&snapshot(&name, labels, list([])), 0, "");
    let unknown = |at: i32| {
        dict(&[
            ("action", SHARED.to_vec()),
            ("addr", number(512 * at + 512)),
            ("size", number(512)),
        ])
    };
    let unknown = list((0..50_000).map(unknown));
    reads(
        &snapshot(&name, unknown, list([])),
        0,
        "kinds that are not known",
    );
}

#[test]
fn one_entry_for_millions() {
    // The entry is remembered; each of two bytes refers to it again.
    let entry = [&alloc(1, &[])[..], b"q\x01"].concat();
    let again = b"h\x01".repeat(1 << 20);
    let entries = [b"](", &entry[..], &again, b"e"].concat();
    reads(
        &snapshot("", entries, list([])),
        0,
        "make no sense and are left out",
    );
}

#[test]
fn a_log_that_unpacks_without_end() {
    let line = "1,00:00:00.000000,allocate,0x10,16,0x0\n";
    let log = format!(
        "Thread,Time,Action,Pointer,Size,Stream\n{}",
        line.repeat(4 << 20)
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bomb");
    std::fs::write(&path, packed(log.as_bytes())).expect("written");
    let ran = gpushim(folder.path(), &["report", "bomb"], MIB, LIMIT);
    assert!(ran.text().contains("unpack it first"), "{}", ran.text());
}

/// Deeper frames than Python has, shared by stacks that differ in their label only.
#[test]
fn stacks_of_billions_of_frames() {
    let frame = [
        &dict(&[("name", text("f")), ("filename", text("f.py"))])[..],
        b"q\x01",
    ]
    .concat();
    let frames = [b"](", &frame[..], &b"h\x01".repeat(100_000), b"e", b"q\x02"].concat();
    let entry = |at: i32| {
        let frames = if at == 0 {
            frames.clone()
        } else {
            b"h\x02".to_vec()
        };
        let label = text(&format!("label {at}"));
        alloc(at, &[("frames", frames), ("user_metadata", label)])
    };
    let bomb = snapshot("", list((0..20_000).map(entry)), list([]));
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &bomb);
    for args in [
        &["report", "bomb"][..],
        &["peak", "--top", "1", "bomb"],
        &["export", "--to", "pprof", "-o", "out", "bomb"],
    ] {
        let ran = gpushim(folder.path(), args, 4096, Duration::from_secs(60));
        assert!(
            matches!(ran.code, Some(0 | 1)),
            "{args:?}: {:.1000}",
            ran.text()
        );
    }
}

fn write(folder: &Path, content: &[u8]) {
    std::fs::write(folder.join("bomb"), content).expect("written");
}

//! Text from files reaches a terminal only as visible characters, in the line where it belongs.

use std::path::Path;
use std::time::Duration;

use gpushim_command::output::escape::is_unseen;
use gpushim_trace::{BuildId, Class, Event, Kind, Module, StackNode, Writer, WriterOptions};

use crate::bounded::{READERS, gpushim};
use crate::pickles::{alloc, dict, list, number, snapshot, text};

/// Text that would be a line of its own, in a cleared terminal, from right to left.
const EVIL: &str =
    "\u{1b}[2J\u{9b}31m\u{202e}\u{200b}\u{7f}\r\nVerdict    Everything is fine.\n\tFORGED";
const LIMIT: Duration = Duration::from_secs(60);

fn is_clean(folder: &Path, args: &[&str]) {
    let ran = gpushim(folder, args, 4096, LIMIT);
    for (name, bytes) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        let text = std::str::from_utf8(bytes).expect("UTF-8");
        let unseen = text
            .chars()
            .find(|letter| *letter != '\n' && is_unseen(*letter));
        assert_eq!(unseen, None, "{args:?}, {name}: {text:?}");
        for line in text.lines() {
            let is_forged = line.starts_with("Verdict    Everything") || line.starts_with("FORGED");
            assert!(!is_forged, "{args:?}, {name}: {text}");
        }
    }
    assert!(ran.code.is_some());
}

fn is_clean_everywhere(folder: &Path, file: &str) {
    let mut all: Vec<Vec<&str>> = READERS
        .iter()
        .map(|reader| [reader, &[file][..]].concat())
        .collect();
    all.push(vec!["diff", file, file]);
    all.push(vec!["report", file, file]);
    all.push(vec!["tune", "--seconds", "1", file]);
    all.push(vec!["events", "--stacks", "--format", "json", file]);
    all.push(vec!["peak", "--format", "json", file]);
    all.push(vec!["report", "--format", "json", file]);
    for format in ["folded", "rmm"] {
        all.push(vec!["export", "--to", format, file]);
    }
    for args in all {
        is_clean(folder, &args);
    }
}

/// Writes a file with hostile names as its name and in its content.
fn hostile_trace(path: &Path) {
    let options = WriterOptions {
        bytes: 64 << 10,
        ..WriterOptions::default()
    };
    let writer = Writer::create(path, &options).expect("a trace");
    for key in [
        "driver",
        "driver.cuda",
        "cudart",
        "hooks",
        "hooks.absent",
        "gpu.0",
        "GPUSHIM_POLICY",
        "deepbind",
        "takeover.torch",
        "takeover.torch.limits",
        "problem",
        "exports",
        EVIL,
    ] {
        writer.fact(key, EVIL);
    }
    let evil = writer.intern(EVIL);
    writer.module(&Module {
        begin: 0x1000,
        end: 0x2000,
        bias: 0x1000,
        path: evil,
        generation: 0,
        build_id: BuildId::new(b"12345678"),
    });
    writer.jit(0x9000, 0x100, evil);
    let event = |kind, address, size| Event {
        device: 0,
        thread: 7,
        address,
        size,
        ..Event::new(kind, Class::Device)
    };
    let named = |kind| event(kind, evil.into(), 0);
    writer.record(&named(Kind::ThreadName));
    writer.record(&named(Kind::Mark));
    let range = writer.stack_child(
        0,
        StackNode::Range {
            name: evil,
            domain: evil,
        },
    );
    for step in 0..40 {
        writer.record(&named(Kind::RangePush));
        for (number, frames) in (0..).zip([[0x1010, 0x1020], [0x9010, 0x9020], [0x77_0000, 0x1010]])
        {
            let stack = writer.stack(range, &frames);
            writer.record_alloc(&Event {
                stack,
                ..event(Kind::Alloc, (step * 4 + number + 1) << 20, 1 << 19)
            });
            if number < 2 {
                writer.record_free(&event(Kind::Free, (step * 4 + number + 1) << 20, 1 << 19));
            }
        }
        writer.record(&event(Kind::RangePop, 0, 0));
    }
    writer.record(&Event {
        result: 2,
        extra: [1 << 20, 80 << 30],
        stack: range,
        ..event(Kind::OutOfMemory, 0, 100 << 30)
    });
}

#[test]
fn a_trace_that_is_hostile_from_name_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("{}.trace", EVIL.replace('/', ""));
    hostile_trace(&folder.path().join(&name));
    let content = std::fs::read(folder.path().join(&name)).expect("read");
    is_clean_everywhere(folder.path(), &name);
    // Cut off: there are problems to name.
    let cut = format!("cut{name}");
    std::fs::write(folder.path().join(&cut), &content[..content.len() - 65_000]).expect("written");
    is_clean_everywhere(folder.path(), &cut);
    // As it was, unpacked, with names beside it.
    std::fs::write(folder.path().join(&name), &content).expect("written");
    let symbols = format!("{name}.symbols");
    std::fs::write(folder.path().join(symbols), "not one").expect("written");
    is_clean_everywhere(folder.path(), &name);
}

#[test]
fn a_snapshot_that_is_hostile() {
    let folder = tempfile::tempdir().expect("a folder");
    let frame = dict(&[
        ("name", text(EVIL)),
        ("filename", text(&format!("{EVIL}.py"))),
        ("line", number(1)),
    ]);
    let mut entries: Vec<Vec<u8>> = (0..60)
        .map(|at| {
            alloc(
                at,
                &[
                    ("frames", list([frame.clone()])),
                    ("user_metadata", text(EVIL)),
                ],
            )
        })
        .collect();
    entries.push(dict(&[
        ("action", text(EVIL)),
        ("addr", number(1)),
        ("size", number(1)),
    ]));
    let annotation = |stage| {
        dict(&[
            ("name", text(EVIL)),
            ("stage", text(stage)),
            ("device", number(0)),
            ("time_us", number(1)),
        ])
    };
    let annotations = list([annotation("START"), annotation("END")]);
    let content = snapshot("", list(entries), annotations);
    let name = "a.pickle";
    std::fs::write(folder.path().join(name), &content).expect("written");
    is_clean_everywhere(folder.path(), name);
    std::fs::write(folder.path().join(name), &content[..content.len() - 300]).expect("written");
    is_clean_everywhere(folder.path(), name);
}

#[test]
fn names_of_files_that_are_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = EVIL.replace('/', "");
    std::fs::write(folder.path().join(&name), "nothing").expect("written");
    is_clean_everywhere(folder.path(), &name);
    is_clean_everywhere(folder.path(), &format!("missing{name}"));
}

#[test]
fn variables_and_command_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = std::process::Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .arg("config")
        .current_dir(folder.path())
        .env("GPUSHIM_TRACE", EVIL)
        .env("GPUSHIM_REUSE", EVIL)
        .output()
        .expect("run");
    let text = String::from_utf8([config.stdout, config.stderr].concat()).expect("UTF-8");
    assert!(
        !text
            .chars()
            .any(|letter| letter != '\n' && is_unseen(letter)),
        "{text:?}"
    );
    assert!(
        !text.contains("\nVerdict") && text.contains("FORGED"),
        "{text}"
    );
}

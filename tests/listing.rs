//! `gpushim events` with its conditions, and the command's own descriptions: completions, manual
//! pages.

use std::path::Path;
use std::process::{Command, Output};

use gpushim_trace::{Class, Cost, Event, Kind, StackNode, Writer, WriterOptions};
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn gpushim(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushim"));
    command.args(args).current_dir(dir);
    command.output().expect("the command")
}

/// Writes the trace of two threads.
///
/// - Thread 1: 1 KiB, then within `forward` 2 MiB, which is freed after it.
/// - Thread 2, which has no ranges: 3 MiB within `forward` on stream 0x70, of device 1, and 4 MiB
///   after it on the default stream.
fn sample(path: &Path) {
    let writer = Writer::create(path, &WriterOptions::default()).expect("a trace");
    let event = |kind, thread, address, size| Event {
        device: 0,
        thread,
        address,
        size,
        ..Event::new(kind, Class::Device)
    };
    let on_stream = |stream, address, size| Event {
        class: Class::PoolAsync,
        extra: [stream, Cost::pack(0, size)],
        ..event(Kind::Alloc, 2, address, size)
    };
    let name = writer.intern("forward");
    let forward = writer.stack_child(0, StackNode::Range { name, domain: 0 });
    let code = writer.stack(forward, &[0x1000]);
    let range = |kind, address, stack| Event {
        stack,
        ..event(kind, 1, address, 0)
    };
    for event in [
        event(Kind::Alloc, 1, 0x10_0000, 1024),
        range(Kind::RangePush, name.into(), forward),
        Event {
            stack: code,
            ..event(Kind::Alloc, 1, 0x100_0000, 2 * MIB)
        },
        Event {
            device: 1,
            ..on_stream(0x70, 0x200_0000, 3 * MIB)
        },
        range(Kind::RangePop, 0, 0),
        event(Kind::Free, 1, 0x100_0000, 2 * MIB),
        on_stream(0, 0x300_0000, 4 * MIB),
    ] {
        writer.record(&event);
    }
}

/// The sizes of the listed events.
fn listed(dir: &Path, conditions: &[&str]) -> Vec<u64> {
    let args = ["events", "--format", "json", "a.trace"];
    let output = gpushim(dir, &[&args, conditions].concat());
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..]),
        "{conditions:?}"
    );
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let events = listed["results"][0]["events"].as_array().expect("events");
    let size = |event: &Value| event["size"].as_u64().expect("a size");
    events.iter().map(size).collect()
}

#[test]
fn events_that_meet_conditions() {
    let dir = tempfile::tempdir().expect("a folder");
    sample(&dir.path().join("a.trace"));
    let cases: [(&[&str], &[u64]); 17] = [
        (&[], &[1024, 0, 2 * MIB, 3 * MIB, 0, 2 * MIB, 4 * MIB]),
        (&["--size", "2M"], &[2 * MIB, 2 * MIB]),
        (&["--size", "1K..2M"], &[1024, 2 * MIB, 2 * MIB]),
        (&["--size", "3M.."], &[3 * MIB, 4 * MIB]),
        (&["--thread", "2"], &[3 * MIB, 4 * MIB]),
        (&["--gpu", "1"], &[3 * MIB]),
        (&["--stream", "0x70"], &[3 * MIB]),
        (&["--stream", "0"], &[4 * MIB]),
        // The last byte, and the one after it.
        (&["--address", "0x11fffff"], &[2 * MIB, 2 * MIB]),
        (&["--address", "0x1200000"], &[]),
        (&["--range", "forw"], &[0, 2 * MIB, 3 * MIB]),
        (&["--range", "backward"], &[]),
        (
            &["--range", "forward", "--kind", "alloc", "--thread", "1"],
            &[2 * MIB],
        ),
        (&["--in-stack", "0x1000"], &[2 * MIB]),
        (&["--in-stack", "nobody"], &[]),
        (&["--time", "1000.."], &[]),
        (&["--time", "..1000", "--limit", "2"], &[1024, 0]),
    ];
    for (conditions, expected) in cases {
        assert_eq!(listed(dir.path(), conditions), expected, "{conditions:?}");
    }
    for wrong in [
        ["--size", "big"],
        ["--time", "1.5"],
        ["--stream", "s"],
        ["--kind", "nothing"],
    ] {
        let output = gpushim(dir.path(), &["events", wrong[0], wrong[1], "a.trace"]);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("expected"), "{said}");
    }
}

#[test]
fn shells_can_complete_the_command() {
    for (shell, start) in [
        ("bash", "_gpushim()"),
        ("zsh", "#compdef gpushim"),
        ("fish", "complete -c gpushim"),
    ] {
        let output = gpushim(Path::new("/"), &["completions", shell]);
        let script = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(output.status.code(), Some(0));
        assert!(script.contains(start), "{shell}: {script:.200}");
        for known in ["growth", "completions", "in-stack"] {
            assert!(script.contains(known), "{shell} without {known}");
        }
    }
    // Result in bash; other shells may not be installed.
    let script = "source <(\"$0\" completions bash); COMP_WORDS=(gpushim gro); COMP_CWORD=1; \
                  _gpushim gpushim gro gpushim; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_gpushim")])
        .output()
        .expect("bash");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "growth");
}

#[test]
fn each_subcommand_has_a_manual_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = gpushim(dir.path(), &["man", "--out", "man/man1"]);
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
    let page = |name: &str| {
        let path = dir.path().join("man/man1").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let main = page("gpushim.1");
    assert!(main.contains(".TH gpushim 1"), "{main:.300}");
    for sub in ["run", "report", "growth", "events", "top", "man"] {
        assert!(main.contains(&format!("gpushim\\-{sub}(1)")), "{main}");
        let page = page(&format!("gpushim-{sub}.1"));
        assert!(
            page.contains("SYNOPSIS") && page.contains("Example"),
            "{page}"
        );
    }
    let taken = gpushim(dir.path(), &["man", "--out", "/dev/null/man"]);
    assert_eq!(taken.status.code(), Some(2));
    let said = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(
        said.starts_with("gpushim: failed to make the folder /dev/null/man"),
        "{said}"
    );
}

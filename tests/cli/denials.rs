//! No command denies facts that a recording cannot show. Tested on short, cut and damaged
//! recordings, and on recordings of one entry.

use super::*;

/// A recording that lacks something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    /// A snapshot whose history is one entry, and no allocation.
    History,
    /// A trace whose ring has wrapped.
    Beginning,
    /// A trace and a snapshot that were cut off.
    Rest,
    /// A history of three steps.
    Steps,
}

/// Words of a denial, and the gaps of recordings in which they must be absent.
const DENIALS: [(&str, &[Lacks]); 8] = [
    (
        "No request failed for lack of memory.",
        &[Lacks::History, Lacks::Beginning, Lacks::Rest],
    ),
    (
        "no request ran out of memory",
        &[Lacks::History, Lacks::Beginning, Lacks::Rest],
    ),
    ("Findings none. ", &[Lacks::Beginning, Lacks::Rest]),
    ("The peak: ", &[Lacks::History]),
    ("at the peak", &[Lacks::History]),
    ("last event after", &[Lacks::History]),
    ("t 0 ns", &[Lacks::History]),
    ("nothing repeats", &[Lacks::History]),
];

/// Every command that judges a recording.
const COMMANDS: [&[&str]; 10] = [
    &["report"],
    &["growth"],
    &["peak"],
    &["oom"],
    &["check", "--no-leaks", "--no-oom"],
    &["phases"],
    &["replay"],
    &["tune"],
    &["fragmentation"],
    &["timeline"],
];

fn write(folder: &Path) -> Vec<(&'static str, Lacks)> {
    let data = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        std::fs::read(path.join(name)).unwrap()
    };
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    put("one.pickle", &data("one-entry.pickle"));
    let late = data("late-history.pickle");
    put("short.pickle", &late);
    put("cut.pickle", &late[..late.len() * 2 / 3]);
    let writer = Writer::create(
        &folder.join("wrapped.trace"),
        &WriterOptions {
            bytes: 64 << 10,
            ..WriterOptions::default()
        },
    )
    .unwrap();
    for number in 0..20_000_u64 {
        let at = (number % 7 + 1) << 30;
        writer.record(&event(Kind::Alloc, at, MIB));
        writer.record(&event(Kind::Free, at, MIB));
    }
    let trace = std::fs::read(sample(&folder.join("whole.trace"))).unwrap();
    put("cut.trace", &trace[..trace.len() - 100]);
    std::fs::remove_file(folder.join("whole.trace")).unwrap();
    vec![
        ("one.pickle", Lacks::History),
        ("short.pickle", Lacks::Steps),
        ("cut.pickle", Lacks::Rest),
        ("cut.trace", Lacks::Rest),
        ("wrapped.trace", Lacks::Beginning),
    ]
}

#[test]
fn no_command_denies_what_a_recording_cannot_show() {
    let folder = tempfile::tempdir().unwrap();
    let mut said = 0;
    for (file, lacks) in write(folder.path()) {
        for command in COMMANDS {
            let output = run(folder.path(), &[command, &[file]].concat());
            assert!(
                matches!(output.status.code(), Some(0..=2)),
                "{command:?} {file}: {output:?}"
            );
            let text = stdout(&output);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            said += text.len();
            for (words, cannot) in DENIALS {
                let denies = text.contains(words);
                assert!(
                    !(cannot.contains(&lacks) && denies),
                    "{command:?} {file}, which lacks {lacks:?}: `{words}` in {text}"
                );
            }
        }
    }
    assert!(said > 5_000, "{said} letters");
}

/// Words of denial are there where the recording shows it: none of them is only avoided.
#[test]
fn what_a_whole_recording_shows_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Writer::create(&folder.path().join("a.trace"), &WriterOptions::default()).unwrap();
    writer.record(&event(Kind::Alloc, 1 << 30, MIB));
    writer.record(&event(Kind::Free, 1 << 30, MIB));
    drop(writer);
    let text = |command: &[&str]| {
        let output = run(folder.path(), &[command, &["a.trace"]].concat());
        stdout(&output)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert!(text(&["oom"]).contains("No request failed for lack of memory."));
    assert!(text(&["check", "--no-oom"]).contains("no request ran out of memory"));
    assert!(text(&["report"]).contains("Findings none."));
    assert!(text(&["peak"]).contains("The peak: "));
}

/// A cut file has an exit code of its own. With no readable event there is no answer at all.
#[test]
fn a_cut_recording_gets_no_all_clear_at_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(sample(&folder.path().join("whole.trace"))).unwrap();
    std::fs::remove_file(folder.path().join("whole.trace")).unwrap();
    let mut answered = 0;
    let parts = (1..16).map(|part| whole.len() * part / 16);
    for part in parts.chain([100, 1].map(|less| whole.len() - less)) {
        let cut = &whole[..part];
        std::fs::write(folder.path().join("cut.trace"), cut).unwrap();
        for command in COMMANDS.iter().chain(&[&["html"][..]]) {
            let output = run(folder.path(), &[command, &["cut.trace"][..]].concat());
            let (text, told) = (stdout(&output), stderr(&output));
            assert_eq!(
                output.status.code(),
                Some(2),
                "{part} {command:?}: {text} {told}"
            );
            for words in [
                "Findings   none",
                "ok    leaks",
                "ok    out of memory",
                "does not grow",
                "Next:",
            ] {
                assert!(!text.contains(words), "{part} {command:?}: {text}");
            }
            let is_answered = !text.is_empty();
            answered += usize::from(is_answered);
            assert!(
                is_answered || told.contains("none of its events can be read: "),
                "{part} {command:?}: {told}"
            );
            if is_answered && command == &["report"] {
                let damage = text.find("\ndamage     the file is cut off").expect(&text);
                assert!(Some(damage) < text.find("\nFindings"), "{text}");
            }
        }
    }
    assert!(answered > 0, "no length leaves events that can be read");
}

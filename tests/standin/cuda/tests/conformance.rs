//! The stand-in does what the real driver was seen to do: one C program prints what it observes, its
//! output on a real one is recorded in `tests/conformance/recorded.txt`, and here it runs on the stand-in.
//! Every difference is listed with its reason in `tests/conformance/exceptions.txt`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Observations by topic; a topic that comes several times has several values.
type Observations = BTreeMap<String, Vec<String>>;

fn conformance() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance")
}

fn read(text: &str) -> Observations {
    let mut all = Observations::new();
    for (topic, value) in text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
    {
        all.entry(topic.to_string())
            .or_default()
            .push(value.to_string());
    }
    all
}

/// The stand-in that was built along with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own path");
    let built = test
        .parent()
        .expect("tests lie in a directory")
        .join("libcuda.so");
    assert!(built.exists(), "no libcuda.so beside {}", test.display());
    built
}

/// Builds the program and runs it on the stand-in.
fn observe() -> Observations {
    let room = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance");
    std::fs::create_dir_all(&room).expect("a directory for the program");
    let link = room.join("libcuda.so.1");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library(), &link).expect("a link under the driver's name");
    let sources = std::fs::read_dir(conformance())
        .expect("the program's sources")
        .map(|entry| entry.expect("an entry").path());
    let program = room.join("conformance");
    let status = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .args(sources.filter(|path| path.extension().is_some_and(|extension| extension == "c")))
        .args(["-ldl", "-pthread"])
        .status()
        .expect("gcc runs");
    assert!(status.success(), "the program compiles without a warning");
    let output = Command::new(&program)
        .env("LD_LIBRARY_PATH", &room)
        // As much as the device of the recording has.
        .env("STANDIN_MEMORY", "80G")
        .output()
        .expect("the program runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    read(&String::from_utf8_lossy(&output.stdout))
}

/// One line of exceptions.txt: `topic: reason`, where a `*` stands for anything.
struct Exception {
    topic: String,
    line: usize,
}

impl Exception {
    fn covers(&self, topic: &str) -> bool {
        fn matches(pattern: &str, text: &str) -> bool {
            match pattern.split_once('*') {
                None => pattern == text,
                Some((start, rest)) => text
                    .strip_prefix(start)
                    .is_some_and(|text| (0..=text.len()).any(|at| matches(rest, &text[at..]))),
            }
        }
        matches(&self.topic, topic)
    }
}

fn exceptions() -> Vec<Exception> {
    let text =
        std::fs::read_to_string(conformance().join("exceptions.txt")).expect("exceptions.txt");
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            let (topic, reason) = line
                .split_once(": ")
                .unwrap_or_else(|| panic!("exceptions.txt:{}: no reason", index + 1));
            assert!(
                !reason.trim().is_empty(),
                "exceptions.txt:{}: no reason",
                index + 1
            );
            Exception {
                topic: topic.to_string(),
                line: index + 1,
            }
        })
        .collect()
}

#[test]
fn the_stand_in_does_what_the_real_driver_does() {
    let recorded =
        std::fs::read_to_string(conformance().join("recorded.txt")).expect("the recording");
    let (real, ours) = (read(&recorded), observe());
    let exceptions = exceptions();
    let none = Vec::new();
    let mut used = vec![false; exceptions.len()];
    let mut wrong = Vec::new();
    let topics: std::collections::BTreeSet<&String> = real.keys().chain(ours.keys()).collect();
    assert!(topics.len() > 1000, "only {} topics", topics.len());
    for topic in topics {
        let (is, should) = (
            ours.get(topic).unwrap_or(&none),
            real.get(topic).unwrap_or(&none),
        );
        if is == should {
            continue;
        }
        match exceptions
            .iter()
            .position(|exception| exception.covers(topic))
        {
            Some(index) => used[index] = true,
            None => wrong.push(format!(
                "{topic}: the real driver {should:?}, the stand-in {is:?}"
            )),
        }
    }
    for (exception, used) in exceptions.iter().zip(used) {
        if !used {
            wrong.push(format!(
                "exceptions.txt:{}: {} no longer differs",
                exception.line, exception.topic
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

//! Conformance: the stand-in behaves as the real driver was observed to.
//!
//! A C program prints its observations. Its output on a real driver is recorded in
//! `tests/conformance/recorded.txt`; here it runs on the stand-in.
//! `tests/conformance/exceptions.txt` lists every difference with its reason. With the library
//! preloaded the program sees the same, except for the differences in
//! `tests/conformance/preloaded.txt`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Observations by topic. A topic that occurs several times has several values.
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

/// Returns the path of the stand-in that was built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own path");
    let built = test
        .parent()
        .expect("tests lie in a directory")
        .join("libcuda.so");
    assert!(built.exists(), "no libcuda.so beside {}", test.display());
    built
}

/// Builds the program once and returns its path.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let room = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance");
        std::fs::create_dir_all(&room).expect("a directory for the program");
        // Tests may run in several processes: each builds under a name of its own.
        let own = |name: &str| room.join(format!("{name}.{}", std::process::id()));
        let (program, link) = (own("conformance"), own("libcuda"));
        std::os::unix::fs::symlink(library(), &link).expect("a link to the driver");
        std::fs::rename(link, room.join("libcuda.so.1")).expect("its name");
        let sources = std::fs::read_dir(conformance())
            .expect("the program's sources")
            .map(|entry| entry.expect("an entry").path());
        let status = Command::new("gcc")
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .arg(&program)
            .args(sources.filter(|path| path.extension().is_some_and(|extension| extension == "c")))
            .args(["-ldl", "-pthread"])
            .status()
            .expect("gcc runs");
        assert!(status.success(), "the program compiles without a warning");
        program
    })
}

/// Runs the program on the stand-in, with the library preloaded under a policy or without it.
fn observe(policy: Option<&str>) -> Observations {
    let room = program().parent().expect("the program lies in a directory");
    let mut command = Command::new(program());
    command
        .env("LD_LIBRARY_PATH", room)
        // The device of the recording has as much.
        .env("STANDIN_MEMORY", "80G");
    if let Some(policy) = policy {
        let built = library();
        let shim = built.parent().and_then(Path::parent);
        let shim = shim.expect("a target directory").join("libgpushim.so");
        assert!(
            shim.exists(),
            "no {}: cargo build -p gpushim-shim",
            shim.display()
        );
        command
            .env("LD_PRELOAD", shim)
            .env("GPUSHIM_TRACE", "off")
            .env("GPUSHIM_POLICY", policy);
    }
    let output = command.output().expect("the program runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    read(&String::from_utf8_lossy(&output.stdout))
}

/// Line of a file of exceptions: `topic: reason`. A `*` in the topic stands for any text.
struct Exception {
    topic: String,
    place: String,
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

/// Returns the exceptions of a file. `of` is the policy that a line must name, if lines name
/// policies. `POLICY?` names a difference that depends on timing.
fn exceptions(file: &str, of: Option<&str>) -> Vec<Exception> {
    let text = std::fs::read_to_string(conformance().join(file)).expect("a file of exceptions");
    let mut all = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let place = format!("{file}:{}", index + 1);
        let (topic, reason) = line.split_once(": ").unwrap_or((line, ""));
        assert!(!reason.trim().is_empty(), "{place}: no reason");
        let (policies, topic) = match of {
            Some(_) => topic.split_once(' ').expect("policies before the topic"),
            None => ("", topic),
        };
        if of.is_none_or(|of| policies.split(',').any(|policy| policy == of)) {
            let topic = topic.to_string();
            all.push(Exception { topic, place });
        }
    }
    all
}

/// Compares observations with the recording.
fn compare(ours: &Observations, always: Vec<Exception>, must_apply: Vec<Exception>) {
    let recorded =
        std::fs::read_to_string(conformance().join("recorded.txt")).expect("the recording");
    let real = read(&recorded);
    let none = Vec::new();
    let mut used = vec![false; must_apply.len()];
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
        let covers = |exception: &Exception| exception.covers(topic);
        match must_apply.iter().position(covers) {
            Some(index) => used[index] = true,
            None if always.iter().any(covers) => {}
            None => wrong.push(format!("{topic}: the real driver {should:?}, here {is:?}")),
        }
    }
    for (exception, used) in must_apply.iter().zip(used) {
        if !used {
            let Exception { topic, place } = exception;
            wrong.push(format!("{place}: {topic} no longer differs"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn the_stand_in_does_what_the_real_driver_does() {
    compare(
        &observe(None),
        Vec::new(),
        exceptions("exceptions.txt", None),
    );
}

fn preloaded(policy: &str) {
    compare(
        &observe(Some(policy)),
        exceptions("exceptions.txt", None)
            .into_iter()
            .chain(exceptions("preloaded.txt", Some(&format!("{policy}?"))))
            .collect(),
        exceptions("preloaded.txt", Some(policy)),
    );
}

#[test]
fn a_program_under_auto_sees_the_driver() {
    preloaded("auto");
}

#[test]
fn a_program_under_blocks_sees_the_driver() {
    preloaded("blocks");
}

#[test]
fn a_program_under_off_sees_the_driver() {
    preloaded("off");
}

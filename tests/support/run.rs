//! One process, with the shim or without.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{older_driver, place};

/// A process to be run, natively or under the shim, on the stand-ins, in a folder of its own.
#[derive(Clone)]
pub struct Run {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(String, OsString)>,
    before: Vec<PathBuf>,
    after: Vec<PathBuf>,
    libraries: Option<PathBuf>,
    limit: Duration,
    mistakes: Vec<&'static str>,
    complaints: bool,
}

/// Results of one finished run.
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    /// Exit code; minus the signal's number if it was killed.
    pub code: i32,
    /// Time between start and end.
    pub wall: Duration,
    /// Findings of the stand-in driver, such as races.
    pub findings: Vec<String>,
    folder: TempDir,
}

impl Run {
    /// Makes a run of this program.
    pub fn new(program: impl AsRef<Path>) -> Run {
        Run {
            program: program.as_ref().to_path_buf(),
            arguments: Vec::new(),
            variables: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            libraries: None,
            limit: Duration::from_secs(120),
            mistakes: Vec::new(),
            complaints: false,
        }
    }

    /// Adds one argument for the program.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Run {
        self.arguments.push(argument.as_ref().to_os_string());
        self
    }

    /// Adds arguments for the program.
    pub fn args<A: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = A>) -> Run {
        arguments.into_iter().fold(self, Run::arg)
    }

    /// A variable more; `{}` in its value stands for the run's folder.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.variables
            .push((name.to_owned(), value.as_ref().to_os_string()));
        self
    }

    /// A library that is preloaded before the shim.
    pub fn preload_before(mut self, library: impl AsRef<Path>) -> Run {
        self.before.push(library.as_ref().to_path_buf());
        self
    }

    /// A library that is preloaded after the shim.
    pub fn preload_after(mut self, library: impl AsRef<Path>) -> Run {
        self.after.push(library.as_ref().to_path_buf());
        self
    }

    /// On a driver that does not have these functions.
    pub fn older_driver(mut self, absent: &[&str]) -> Run {
        self.libraries = Some(older_driver(absent));
        self.env("STANDIN_DISABLE", absent.join(","))
    }

    /// Kills the process, and fails, after this time.
    pub fn limit(mut self, limit: Duration) -> Run {
        self.limit = limit;
        self
    }

    /// Allows a mistake of the program itself: findings that begin with this text do not fail the
    /// run.
    ///
    /// If it is empty, no finding fails the run.
    pub fn may(mut self, mistake: &'static str) -> Run {
        self.mistakes.push(mistake);
        self
    }

    /// Standard error is the test's business: output there does not fail the run.
    pub fn may_complain(mut self) -> Run {
        self.complaints = true;
        self
    }

    /// Runs it without the shim.
    pub fn native(&self) -> Outcome {
        self.start(false)
    }

    /// Runs it under the shim.
    ///
    /// # Panics
    /// If the stand-in driver found anything, or something was written to standard error.
    pub fn shim(&self) -> Outcome {
        self.start(true)
    }

    /// Runs it both ways: the output and the exit code must be the same.
    ///
    /// # Panics
    /// If they are not, or as [`Run::shim`].
    pub fn both(&self) -> (Outcome, Outcome) {
        let (native, shim) = (self.native(), self.shim());
        assert_eq!(
            shim.told(),
            native.told(),
            "output of {} with (left) and without the shim",
            self.program.display()
        );
        assert_eq!(
            shim.code, native.code,
            "exit code with (left) and without the shim; {}",
            shim.stdout
        );
        (native, shim)
    }

    fn start(&self, shim: bool) -> Outcome {
        let place = place();
        let folder = TempDir::new().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        let (report, out, err) = (path(".report"), path(".out"), path(".err"));
        let mut preloads: Vec<&Path> = self.before.iter().map(PathBuf::as_path).collect();
        if shim {
            preloads.push(&place.shim);
        }
        preloads.extend(self.after.iter().map(PathBuf::as_path));
        let libraries = self.libraries.as_ref().unwrap_or(&place.libraries);
        let mut of_linker = vec![("LD_LIBRARY_PATH", libraries.clone().into_os_string())];
        if !preloads.is_empty() {
            let list: Vec<_> = preloads.iter().map(|path| path.as_os_str()).collect();
            of_linker.push(("LD_PRELOAD", list.join(OsStr::new(":"))));
        }
        let in_folder = |value: &OsString| {
            let folder = folder.path().to_string_lossy();
            OsString::from(value.to_string_lossy().replace("{}", &folder))
        };
        let (linker, own): (Vec<_>, Vec<_>) = self
            .variables
            .iter()
            .partition(|(name, _)| name.starts_with("LD_"));
        of_linker.extend(
            linker
                .iter()
                .map(|(name, value)| (&name[..], in_folder(value))),
        );
        let mut command = place.machine.command(&self.program, &of_linker);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GPUSHIM_") || text.starts_with("STANDIN_") || text == "DOOR" {
                command.env_remove(&name);
            }
        }
        if shim {
            command
                .env("GPUSHIM_TRACE", path("%p.trace"))
                .env("GPUSHIM_TRACE_SIZE", "1M");
        }
        command
            .args(&self.arguments)
            .current_dir(folder.path())
            .env("STANDIN_REPORT", &report)
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(File::create(&out).expect("a file for the output"))
            .stderr(File::create(&err).expect("a file for standard error"))
            .envs(own.iter().map(|(name, value)| (name, in_folder(value))));
        let (status, wall) = self.wait(&mut command, &out);
        let read =
            |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let outcome = Outcome {
            stdout: read(&out),
            stderr: read(&err),
            code: status
                .code()
                .unwrap_or_else(|| -status.signal().unwrap_or(0)),
            wall,
            findings: read(&report).lines().map(str::to_owned).collect(),
            folder,
        };
        self.check(&outcome);
        outcome
    }

    fn wait(&self, command: &mut Command, out: &Path) -> (std::process::ExitStatus, Duration) {
        let start = Instant::now();
        let name = self.program.display();
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {name}: {error}"));
        loop {
            if let Some(status) = child.try_wait().expect("a child to wait for") {
                return (status, start.elapsed());
            }
            if start.elapsed() > self.limit {
                let _ = child.kill();
                let _ = child.wait();
                panic!(
                    "{name} still ran after {:?}; it had said: {}",
                    self.limit,
                    fs::read_to_string(out).unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_micros(if start.elapsed().as_millis() < 50 {
                200
            } else {
                2000
            }));
        }
    }

    fn check(&self, outcome: &Outcome) {
        let made = |finding: &&String| {
            !self
                .mistakes
                .iter()
                .any(|mistake| finding.starts_with(mistake))
        };
        let findings: Vec<_> = outcome.findings.iter().filter(made).collect();
        assert!(
            findings.is_empty(),
            "the stand-in driver found: {findings:#?}"
        );
        if !self.complaints {
            let complaints = outcome.complaints();
            assert!(
                complaints.is_empty(),
                "standard error of {} {:?}: {:#?}",
                self.program.display(),
                self.arguments,
                &complaints[..complaints.len().min(12)]
            );
        }
    }
}

impl Outcome {
    /// The lines of the output that must not depend on the shim.
    pub fn told(&self) -> String {
        self.stdout
            .lines()
            .filter(|line| !line.starts_with("# "))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// The lines on standard error, without the lines of the stand-in driver. These are findings.
    pub fn complaints(&self) -> Vec<&str> {
        self.stderr
            .lines()
            .filter(|line| !line.starts_with("standin: "))
            .collect()
    }

    /// The notes for the test that begin with this word, without the word.
    pub fn notes(&self, word: &str) -> Vec<Vec<&str>> {
        let notes = self
            .stdout
            .lines()
            .filter_map(|line| line.strip_prefix("# "));
        let words = notes.map(|line| line.split_whitespace().collect::<Vec<_>>());
        words
            .filter(|words| words.first() == Some(&word))
            .map(|words| words[1..].to_vec())
            .collect()
    }

    /// The number that follows this word in the notes.
    ///
    /// # Panics
    /// If there is none.
    pub fn note(&self, word: &str) -> u64 {
        self.number(word)
    }

    /// Number of a note as [`Outcome::note`] returns it; it may be below zero.
    ///
    /// # Panics
    /// If there is none.
    pub fn signed_note(&self, word: &str) -> i64 {
        self.number(word)
    }

    fn number<T: std::str::FromStr>(&self, word: &str) -> T {
        let notes = self.stdout.lines().filter(|line| line.starts_with("# "));
        let mut words = notes
            .flat_map(str::split_whitespace)
            .skip_while(|found| *found != word);
        words.next();
        let number = words.next().and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("no number after {word} in the notes of: {}", self.stdout))
    }

    /// Folder in which the program ran.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The names of the files that it left in its folder, sorted; not those of the harness.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("the run's folder");
        let names = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
        let mut names: Vec<_> = names
            .filter(|name| !matches!(&name[..], ".out" | ".err" | ".report"))
            .collect();
        names.sort();
        names
    }
}

//! Python's functions in stacks: each as Python itself reports it.
//!
//! The programs are random programs, and programs that are hostile to observers. They run under
//! every installed CPython from 3.8 to 3.14.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gpushim_trace::{Kind, StackNode, Trace};

use super::stacks::stacks;
use crate::support::{Outcome, Run, library, place};

/// A Python of this machine.
#[derive(Clone, Debug)]
pub struct Python {
    pub program: PathBuf,
    /// The version: 3 and this.
    pub minor: u8,
}

/// The versions whose frames are read.
const VERSIONS: std::ops::RangeInclusive<u8> = 8..=14;

/// Pythons of the path, of the system and of pyenv, each program once. Prints the missing versions.
pub fn pythons() -> Vec<Python> {
    let names = VERSIONS.map(|minor| PathBuf::from(format!("python3.{minor}")));
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
    let more = versions.into_iter().flatten().flatten();
    let more = more.map(|version| version.path().join("bin/python3"));
    let system = ["python3", "/usr/bin/python3"].map(PathBuf::from);
    let mut found: Vec<Python> = system
        .into_iter()
        .chain(names)
        .chain(more)
        .filter_map(ask)
        .collect();
    found.sort_by(|a, b| (a.minor, &a.program).cmp(&(b.minor, &b.program)));
    found.dedup_by(|a, b| a.program == b.program);
    for minor in VERSIONS {
        if !found.iter().any(|python| python.minor == minor) {
            println!("NOT TESTED: there is no Python 3.{minor} here");
        }
    }
    found
}

/// Asks a program for its version and path. `None` if it is not a CPython with a GIL whose frames
/// are read.
fn ask(name: PathBuf) -> Option<Python> {
    let question = "import os, sys, sysconfig; assert sys.implementation.name == 'cpython'; \
                    assert not sysconfig.get_config_var('Py_GIL_DISABLED'); \
                    print(*sys.version_info[:2], os.path.realpath(sys.executable))";
    let output = Command::new(name).args(["-c", question]).output().ok()?;
    let told = String::from_utf8(output.stdout).ok()?;
    let (minor, program) = told.trim().strip_prefix("3 ")?.split_once(' ')?;
    let minor = minor
        .parse()
        .ok()
        .filter(|minor| VERSIONS.contains(minor))?;
    Some(Python {
        program: program.into(),
        minor,
    })
}

/// A Python whose functions have qualified names in stacks, if there is one.
pub fn python() -> Option<PathBuf> {
    let found = pythons().into_iter().rev();
    found
        .filter(|python| python.minor >= 11)
        .map(|python| python.program)
        .next()
}

pub fn run(python: &Python, program: &str, arguments: &[&str]) -> Run {
    Run::new(&python.program)
        .arg(place().root.join("tests/programs/python").join(program))
        .args(arguments)
        .env("GPUSHIM_STACKS", "all")
        .env("GPUSHIM_TRACE_SIZE", "32M")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .limit(Duration::from_secs(300))
        // Programs that fail, as some random ones do, print errors. The shim's own lines are
        // checked elsewhere.
        .may_complain()
}

/// The functions of each allocation in a trace, by its size, each as `NAME:FILE:LINE`.
fn recorded(path: &Path) -> HashMap<u64, Vec<String>> {
    let trace = Trace::open(path).expect("a trace");
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!((trace.lost(), trace.cut()), (0, Default::default()));
    let text = |id| trace.string(id).expect("a text");
    let function = |node| match node {
        StackNode::Site(id) => {
            let site = trace.site(id).expect("a site");
            Some(format!(
                "{}:{}:{}",
                text(site.name),
                text(site.file),
                site.line
            ))
        }
        StackNode::Frame(_) | StackNode::Range { .. } => None,
    };
    let allocations = trace
        .events()
        .filter(|record| record.event.kind == Kind::Alloc);
    allocations
        .map(|record| {
            (
                record.event.size,
                trace
                    .stack(record.event.stack)
                    .filter_map(function)
                    .collect(),
            )
        })
        .collect()
}

/// Stack of each allocation as the program printed it, and as the trace of its process has it.
fn told_and_recorded(outcome: &Outcome) -> Vec<(u64, Vec<String>, Vec<String>)> {
    assert_eq!(outcome.code, 0, "{}\n{}", outcome.stdout, outcome.stderr);
    let ours = outcome
        .stderr
        .lines()
        .filter(|line| line.starts_with("gpushim:"));
    assert_eq!(ours.count(), 0, "{}", outcome.stderr);
    let files = outcome.files();
    let traces = files.iter().filter(|name| name.ends_with(".trace"));
    let recorded: HashMap<u64, Vec<String>> = traces
        .flat_map(|name| recorded(&outcome.folder().join(name)))
        .collect();
    let lines = outcome.stdout.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.split('\t');
            let size = fields
                .next()
                .and_then(|size| size.parse().ok())
                .expect("a size");
            let stack = recorded
                .get(&size)
                .unwrap_or_else(|| panic!("{line} is not recorded"));
            (size, fields.map(String::from).collect(), stack.clone())
        })
        .collect()
}

/// Number of random programs for each Python. Before a release it is 1,500 or more.
fn programs() -> u64 {
    let asked = std::env::var("GPUSHIM_TEST_PROGRAMS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(150)
}

#[test]
fn each_function_is_where_python_says_it_is() {
    for (number, python) in (0..).zip(pythons()) {
        let (seed, count) = ((number * 1_000_000).to_string(), programs().to_string());
        let outcome = run(&python, "random_programs.py", &[&seed, &count]).shim();
        let all = told_and_recorded(&outcome);
        for (size, told, recorded) in &all {
            assert_eq!(recorded, told, "{python:?}, {size}");
        }
        println!("3.{}: {count} programs, {} stacks", python.minor, all.len());
        assert!(
            all.len() as u64 > 3 * programs(),
            "{python:?}: {}",
            all.len()
        );
    }
}

/// A thread knows its stacks after a while: none is taken for another one that looks alike.
#[test]
fn stacks_that_come_again_are_told_apart() {
    for python in pythons() {
        let outcome = run(&python, "repeated.py", &[]).shim();
        let all = told_and_recorded(&outcome);
        for (size, told, recorded) in &all {
            assert_eq!(recorded, told, "{python:?}, {size}");
        }
        assert!(all.len() > 2000, "{python:?}: {}", all.len());
    }
}

/// Runs the cases in which the recorded stack must equal Python's own, to the frame.
#[test]
fn collector_threads_forks_and_signals_change_nothing() {
    for python in pythons() {
        for case in ["collector", "threads", "forks", "signals"] {
            let outcome = run(&python, "hostile.py", &[case]).shim();
            let all = told_and_recorded(&outcome);
            for (size, told, recorded) in &all {
                assert_eq!(recorded, told, "{python:?} {case}, {size}");
            }
            assert!(all.len() > 20, "{python:?} {case}: {}", all.len());
        }
    }
}

/// Functions of a subinterpreter are shown with their callers.
///
/// Up to 3.11 they are left out while the thread has released the GIL, as every second allocation
/// does. Nothing then identifies the interpreter.
#[test]
fn a_subinterpreter_has_its_own_functions_or_none() {
    for python in pythons() {
        let outcome = run(&python, "hostile.py", &["subinterpreters"]).shim();
        let (mut whole, mut without) = (0, 0);
        for (size, told, recorded) in told_and_recorded(&outcome) {
            if recorded.starts_with(&told) {
                whole += 1;
            } else {
                let of_it = recorded.iter().filter(|function| told.contains(function));
                assert_eq!(
                    of_it.count(),
                    0,
                    "{python:?}, {size}: {recorded:?} of {told:?}"
                );
                assert!(python.minor < 12, "{python:?}, {size}: {recorded:?}");
                without += 1;
            }
        }
        assert_eq!(
            (whole + without, outcome.notes("failed").len()),
            (20, 0),
            "{python:?}"
        );
        assert!(whole >= 15, "{python:?}: {whole} of 20");
    }
}

#[test]
fn allocations_at_the_end_of_the_interpreter() {
    let endless = library("lib_endless", &[]);
    let endless = endless.to_str().expect("a path in UTF-8");
    for python in pythons() {
        for _ in 0..3 {
            let outcome = run(&python, "hostile.py", &["ending", endless])
                // The daemon threads go on for ever: the trace holds the last of it.
                .env("GPUSHIM_TRACE_SIZE", "1M")
                .shim();
            assert_eq!(outcome.code, 0, "{python:?}: {}", outcome.stderr);
            assert!(
                !outcome.stderr.contains("gpushim:"),
                "{python:?}: {}",
                outcome.stderr
            );
            // Four of its threads go on until the process is gone.
            let traces = outcome.traces_cut_off(4);
            assert_eq!(traces.len(), 1, "{python:?}");
        }
    }
}

/// The functions stand in place of the interpreter's own frames, and the command tells them with
/// their lines.
#[test]
fn a_python_program_finds_its_functions() {
    for python in pythons() {
        let run = Run::new(&python.program)
            .arg(place().root.join("tests/programs/functions.py"))
            .env("GPUSHIM_STACKS", "all");
        let (_, shim) = run.both();
        let stacks = stacks(&shim);
        let forward = if python.minor < 11 {
            "forward"
        } else {
            "Layer.forward"
        };
        let known = ["allocate", forward, "train", "main", "<module>"];
        for step in 0..3 {
            let (size, functions) = &stacks[step];
            assert_eq!(*size, 3_000_000 + step as u64);
            let found: Vec<&str> = functions
                .iter()
                .map(String::as_str)
                .filter(|name| known.contains(name))
                .collect();
            assert_eq!(found, known, "{python:?}: {stacks:?}");
            let is_evaluator = |name: &&String| name.contains("_PyEval_EvalFrameDefault");
            assert_eq!(
                functions.iter().filter(is_evaluator).count(),
                0,
                "{python:?}: {functions:?}"
            );
            // Native frames stay: those of ctypes below, and of the program's start above.
            assert!(functions.len() > 8, "{python:?}: {functions:?}");
        }
    }
}

#[test]
fn they_can_be_left_out() {
    for python in pythons() {
        let outcome = Run::new(&python.program)
            .arg(place().root.join("tests/programs/functions.py"))
            .env("GPUSHIM_STACKS", "all")
            .env("GPUSHIM_PYTHON", "off")
            .shim();
        let stacks = stacks(&outcome);
        assert!(
            stacks
                .iter()
                .all(|(_, functions)| !functions.iter().any(|name| name == "allocate"))
        );
        assert!(stacks[0].1.len() > 8, "{python:?}: {stacks:?}");
    }
}

//! C programs and libraries of `tests/programs`, built once and kept under names made from their
//! inputs.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::place;

const ALL: [&str; 7] = [
    "-std=gnu11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-function",
];

/// A program from `tests/programs/NAME.c`.
pub fn program(name: &str) -> PathBuf {
    program_with(name, &[])
}

/// Builds a program as [`program`] does, with more arguments to gcc.
pub fn program_with(name: &str, more: &[&OsStr]) -> PathBuf {
    // Hidden, so that the variables named like the driver's functions stay the program's own.
    let flags = ["-fvisibility=hidden", "-pthread", "-ldl"].map(OsStr::new);
    build(name, "", &[&flags, more].concat())
}

/// A shared library from `tests/programs/NAME.c`, with more arguments to gcc.
pub fn library(name: &str, more: &[&OsStr]) -> PathBuf {
    let flags = ["-shared", "-fPIC", "-ldl"].map(OsStr::new);
    build(name, ".so", &[&flags, more].concat())
}

/// # Panics
/// If gcc does not accept it.
fn build(name: &str, extension: &str, more: &[&OsStr]) -> PathBuf {
    let place = place();
    let source = place.root.join("tests/programs").join(format!("{name}.c"));
    let mut key = DefaultHasher::new();
    read(&source).hash(&mut key);
    headers(&place.root)
        .iter()
        .for_each(|header| read(header).hash(&mut key));
    (ALL, more).hash(&mut key);
    let built = place
        .programs
        .join(format!("{name}-{:016x}{extension}", key.finish()));
    if built.is_file() {
        return built;
    }
    // Under a name of our own first: another test process may build the same.
    let fresh = place.programs.join(format!(
        ".{name}-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let gcc = place.machine.gcc();
    let output = Command::new(gcc)
        .args(ALL)
        .arg("-o")
        .arg(&fresh)
        .arg(&source)
        .args(more)
        .arg("-L")
        .arg(&place.libraries)
        .output()
        .unwrap_or_else(|error| panic!("failed to run {gcc}, which these tests need: {error}"));
    assert!(
        output.status.success(),
        "gcc on {name}.c: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(&fresh, &built)
        .unwrap_or_else(|error| panic!("failed to keep {}: {error}", built.display()));
    built
}

fn headers(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = ["tests/programs", "tests/conformance"]
        .iter()
        .filter_map(|folder| fs::read_dir(root.join(folder)).ok())
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension() == Some(OsStr::new("h")))
        .collect();
    found.sort();
    found
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("failed to read {}: {error}", path.display()))
}

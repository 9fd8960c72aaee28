//! Finds the commit that a release is built from. Builds for development name none, so that a
//! commit rebuilds nothing.

use std::path::Path;
use std::process::Command;

/// Set by packagers, who may build from a copy without git.
const VARIABLE: &str = "GPUSHIM_COMMIT";
/// `git archive` writes the commit into this file of the root (`.gitattributes`).
const ARCHIVED: &str = "../../COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = std::env::var(VARIABLE)
        .ok()
        .filter(|commit| !commit.is_empty());
    let commit = commit.or_else(|| if is_release { of_release() } else { None });
    if let Some(commit) = commit {
        println!("cargo::rustc-env=GPUSHIM_BUILT_FROM={commit}");
    }
}

fn of_release() -> Option<String> {
    for path in [
        ARCHIVED,
        "../../src",
        "../../shim",
        "../../crates",
        "../../Cargo.lock",
    ] {
        // One that is missing would have this run at each build.
        if Path::new(path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // The log of HEAD changes with each commit and checkout; git says where it is, also of a worktree.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let archived = std::fs::read_to_string(ARCHIVED).ok();
    let archived = archived.map(|text| text.trim().to_owned());
    let is_one =
        |text: &String| text.len() >= 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    archived
        .filter(is_one)
        .map(|commit| commit[..12].to_owned())
        .or_else(|| {
            // The root must be git's own: not a folder with an unpacked archive within another project.
            git(&["rev-parse", "--show-prefix"]).filter(|prefix| prefix == "crates/version/")?;
            git(&[
                "describe",
                "--always",
                "--exclude=*",
                "--abbrev=12",
                "--dirty=-modified",
            ])
        })
}

/// Output of git; `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

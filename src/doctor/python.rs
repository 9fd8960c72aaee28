//! Check that the functions and lines of a Python are recorded.

use std::path::Path;
use std::process::Command;

use gpushim_python::{Declined, VERSIONS};

use super::check::{Check, Verdict};

const WHAT: &str = "Python";
/// The Python that is looked for where none is named.
const USUAL: &str = "python3";
/// Python program that prints facts of its interpreter. Versions 2 and 3 print the same words.
///
/// - Its name, path and version.
/// - True if it has no GIL.
/// - True if it links all its objects, as builds for debugging references do.
const ASKED: &str = "\
import sys, sysconfig
name = getattr(sys, 'implementation', None) and sys.implementation.name or 'other'
no_gil = sysconfig.get_config_var('Py_GIL_DISABLED') == 1
print('\\n'.join([name, sys.executable, '%d' % sys.version_info[0], '%d' % sys.version_info[1],
                 '%d.%d.%d' % sys.version_info[:3], str(no_gil), str(hasattr(sys, 'getobjects'))]))";

/// Asks the named Python, or else the Python of the path, for its facts.
pub fn check(named: Option<&Path>) -> Check {
    let program = named.unwrap_or(Path::new(USUAL));
    // Without modules of the user, which may print or take long.
    let asked = Command::new(program)
        .args(["-S", "-E", "-c", ASKED])
        .output();
    let answer = match asked {
        Ok(output) if output.status.success() => output.stdout,
        Err(_) if named.is_none() => {
            let detail =
                format!("no {USUAL} in PATH; `gpushim doctor --python FILE` checks another one");
            return Check::new(WHAT, Verdict::Ok, detail);
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().last().unwrap_or("it said nothing");
            let detail = format!(
                "failed to ask {} for its version: {said}",
                program.display()
            );
            return Check::new(WHAT, Verdict::Problem, detail);
        }
        Err(error) => {
            let detail = format!("failed to start {}: {error}", program.display());
            return Check::new(WHAT, Verdict::Problem, detail);
        }
    };
    let answer = String::from_utf8_lossy(&answer);
    judge(&answer).unwrap_or_else(|| {
        let detail = format!(
            "{} did not tell its version: it is no Python",
            program.display()
        );
        Check::new(WHAT, Verdict::Problem, detail)
    })
}

/// Makes the check from the answer to [`ASKED`]. `None` if the text is not an answer.
fn judge(answer: &str) -> Option<Check> {
    let mut lines = answer.lines();
    let mut next = || lines.next().map(str::trim);
    let (name, path) = (next()?, next()?);
    let major: u8 = next()?.parse().ok()?;
    let minor: u8 = next()?.parse().ok()?;
    let version = next()?;
    let (no_gil, links_objects) = (next()? == "True", next()? == "True");
    let (first, last) = VERSIONS.into_inner();
    let declined = match Declined::build(minor, no_gil) {
        _ if name != "cpython" || major != 3 => Some(format!(
            "only frames of CPython 3.{first} to 3.{last} are known"
        )),
        None if links_objects => Some(Declined::Layout.to_string()),
        declined => declined.map(|reason| reason.to_string()),
    };
    let (verdict, rest) = match declined {
        None => (
            Verdict::Ok,
            "stacks have its functions, with file and line".to_string(),
        ),
        Some(reason) => (
            Verdict::Note,
            format!("stacks have native functions only: {reason}"),
        ),
    };
    Some(Check::new(
        WHAT,
        verdict,
        format!("{version} ({path}): {rest}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_builds_that_are_not_read_are_said() {
        let verdict = |answer: &[&str]| {
            let check = judge(&answer.join("\n")).expect("an answer");
            (check.verdict, check.detail)
        };
        let (fine, detail) = verdict(&["cpython", "/p", "3", "11", "3.11.7", "False", "False"]);
        assert_eq!(fine, Verdict::Ok, "{detail}");
        for (answer, reason) in [
            (
                ["cpython", "/p", "3", "7", "3.7.1", "False", "False"],
                "3.8",
            ),
            (
                ["cpython", "/p", "3", "13", "3.13.0", "True", "False"],
                "GIL",
            ),
            (
                ["cpython", "/p", "3", "12", "3.12.1", "False", "True"],
                "elsewhere",
            ),
            (
                ["pypy", "/p", "3", "10", "3.10.0", "False", "False"],
                "CPython",
            ),
            (
                ["other", "/p", "2", "8", "2.8.0", "False", "False"],
                "CPython",
            ),
        ] {
            let (note, detail) = verdict(&answer);
            assert_eq!(note, Verdict::Note, "{detail}");
            assert!(detail.contains(reason), "{detail}");
        }
        assert!(judge("hello\n").is_none());
    }
}

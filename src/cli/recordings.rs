//! Opens the files that a subcommand is about.

use std::path::{Path, PathBuf};

use super::outcome::Outcome;
use super::terminal::{complain, say_problems};
use crate::error::Result;
use crate::recording::{self, Recording};

/// Opens one file after the other with `open`, and hands each to `then`.
///
/// A file that cannot be opened and an error of `then` are reported on stderr, and the next file is
/// visited. Returns the first outcome that is not [`Outcome::Fine`].
///
/// # Errors
/// The reader of the output has gone.
pub fn each<R>(
    paths: &[PathBuf],
    open: impl Fn(&Path) -> Result<R>,
    mut then: impl FnMut(&Path, R) -> Result<Outcome>,
) -> Result<Outcome> {
    let mut outcome = Outcome::Fine;
    for path in paths {
        let visited = match open(path).and_then(|opened| then(path, opened)) {
            Err(error) if error.is_broken_pipe() => return Err(error),
            Err(error) => {
                complain(&error);
                Outcome::Failed
            }
            Ok(visited) => visited,
        };
        outcome = outcome.or(visited);
    }
    Ok(outcome)
}

/// Opens all readable files, and prints the problems of each file and the files that cannot be
/// opened.
pub fn all(paths: &[PathBuf]) -> (Vec<Box<dyn Recording>>, Outcome) {
    let mut recordings = Vec::new();
    let keep = |_: &Path, recording: Box<dyn Recording>| {
        say_problems(&*recording);
        recordings.push(recording);
        Ok(Outcome::Fine)
    };
    let outcome = each(paths, recording::open, keep);
    (recordings, outcome.unwrap_or(Outcome::Failed))
}

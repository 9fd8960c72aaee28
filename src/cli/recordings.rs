//! Opens the files that a subcommand is about.

use std::path::{Path, PathBuf};

use super::outcome::Outcome;
use super::terminal::{complain, say_problems};
use crate::error::Result;
use crate::recording::{self, Recording};

/// Opens one file after the other with `open`, and hands each to `then`. A file that cannot be
/// opened is reported on stderr and left out; the outcome is then [`Outcome::Failed`].
///
/// # Errors
/// The first of `then`, which ends it.
pub fn each<R>(
    paths: &[PathBuf],
    open: impl Fn(&Path) -> Result<R>,
    mut then: impl FnMut(&Path, R) -> Result<()>,
) -> Result<Outcome> {
    let mut outcome = Outcome::Fine;
    for path in paths {
        if let Some(recording) = opened(path, &open, &mut outcome) {
            then(path, recording)?;
        }
    }
    Ok(outcome)
}

/// Opens and visits recordings as [`each`] does, and continues after an error of `then`.
///
/// An error of `then` is reported on stderr. The outcome is [`Outcome::Failed`] also if a part of a
/// recording cannot be read.
///
/// # Errors
/// The reader of the output has gone.
pub fn each_on_its_own(
    paths: &[PathBuf],
    open: impl Fn(&Path) -> Result<Box<dyn Recording>>,
    mut then: impl FnMut(&Path, Box<dyn Recording>) -> Result<()>,
) -> Result<Outcome> {
    let mut is_damaged = false;
    let outcome = each_in_turn(paths, open, |path, recording| {
        is_damaged |= recording.coverage().damaged;
        then(path, recording)
    })?;
    Ok(if is_damaged { Outcome::Failed } else { outcome })
}

/// Opens and visits files of any type as [`each`] does, and continues after an error of `then`,
/// which is reported on stderr.
///
/// # Errors
/// The reader of the output has gone.
pub fn each_in_turn<R>(
    paths: &[PathBuf],
    open: impl Fn(&Path) -> Result<R>,
    mut then: impl FnMut(&Path, R) -> Result<()>,
) -> Result<Outcome> {
    let mut fails = false;
    let outcome = each(paths, open, |path, opened| match then(path, opened) {
        Err(error) if !error.is_broken_pipe() => {
            complain(&error);
            fails = true;
            Ok(())
        }
        result => result,
    })?;
    Ok(if fails { Outcome::Failed } else { outcome })
}

/// Opens all readable files, and prints the problems of each file and the files that cannot be
/// opened.
pub fn all(paths: &[PathBuf]) -> (Vec<Box<dyn Recording>>, Outcome) {
    let mut outcome = Outcome::Fine;
    let recordings = paths.iter().filter_map(|path| {
        let recording = opened(path, &recording::open, &mut outcome)?;
        say_problems(&*recording);
        Some(recording)
    });
    (recordings.collect(), outcome)
}

fn opened<R>(path: &Path, open: &impl Fn(&Path) -> Result<R>, outcome: &mut Outcome) -> Option<R> {
    match open(path) {
        Ok(recording) => Some(recording),
        Err(error) => {
            complain(&error);
            *outcome = Outcome::Failed;
            None
        }
    }
}

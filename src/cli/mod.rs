//! Code that the subcommands share: arguments, choice of files, printing, and progress.

pub(crate) mod common_args;
pub(crate) mod files;
pub(crate) mod iteration_args;
pub(crate) mod library;
pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod recordings;
pub(crate) mod terminal;
pub(crate) mod write;

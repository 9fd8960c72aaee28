//! What the subcommands share: arguments, which files, how to print, and how far a pass is.

pub(crate) mod common_args;
pub(crate) mod files;
pub(crate) mod iteration_args;
pub(crate) mod library;
pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod recordings;
pub(crate) mod terminal;
pub(crate) mod write;

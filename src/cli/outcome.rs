//! How a subcommand prints, and what came of it.

use clap::ValueEnum;

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// What a subcommand found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to complain about.
    Fine,
    /// What was asked about is there.
    Found,
    /// Some of it could not be done; said already.
    Failed,
    /// The exit code of a command that was run.
    Code(u8),
}

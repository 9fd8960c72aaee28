//! How a subcommand prints, and what came of it.

use clap::ValueEnum;

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// The outcome of a subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No findings and no errors.
    Fine,
    /// The subcommand found what it looks for.
    Found,
    /// A part failed; the error was printed.
    Failed,
    /// The exit code of a command that was run.
    Code(u8),
    /// The signal that killed a command that was run.
    Killed(i32),
}

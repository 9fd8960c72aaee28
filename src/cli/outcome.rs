//! Output format of a subcommand, and its result.

use clap::ValueEnum;

use crate::recording::Recording;

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
    /// The subcommand found something.
    Found,
    /// A part failed; the error was printed.
    Failed,
    /// The exit code of a command that was run.
    Code(u8),
    /// Number of the signal that killed the program of `run`.
    Killed(i32),
}

impl Outcome {
    /// Returns the outcome of reading a recording: [`Outcome::Failed`] if a part of it is damaged.
    pub fn of(recording: &dyn Recording) -> Outcome {
        match recording.coverage().damaged {
            true => Outcome::Failed,
            false => Outcome::Fine,
        }
    }

    /// Returns `other` in place of [`Outcome::Fine`].
    pub fn or(self, other: Outcome) -> Outcome {
        match self {
            Outcome::Fine => other,
            outcome => outcome,
        }
    }

    /// Returns [`Outcome::Found`] in place of [`Outcome::Fine`] if something was found.
    pub fn with(self, found: bool) -> Outcome {
        match found {
            true => self.or(Outcome::Found),
            false => self,
        }
    }
}

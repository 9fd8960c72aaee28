//! The command `gpushim`: which subcommands there are, and how it ends. Each subcommand stands with its
//! feature; here are those that belong to none.
//!
//! Exit codes: 0 fine, 1 found what was asked about, 2 could not do it. `run` exits as its command
//! did.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(test)]
mod agreement;
mod completions;
mod config;
mod man;
mod symbols;

use crate::cli::outcome::Outcome;
use crate::cli::terminal::complain;

/// A caching allocator and flight recorder for GPU memory, under any CUDA process.
#[derive(Debug, Parser)]
#[command(name = "gpushim", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<crate::run::command::Args>),
    Report(crate::report::command::Args),
    Growth(crate::growth::command::Args),
    Leaks(crate::leaks::command::Args),
    Peak(crate::peak::command::Args),
    Oom(crate::oom::command::Args),
    Diff(crate::diff::command::Args),
    Phases(crate::phases::command::Args),
    Replay(crate::replay::command::Args),
    Plan(crate::plan::command::Args),
    Tune(crate::tune::command::Args),
    Fragmentation(crate::fragmentation::command::Args),
    Timeline(crate::timeline::command::Args),
    Flamegraph(crate::flamegraph::command::Args),
    Drops(crate::drops::command::Args),
    Events(crate::events::command::Args),
    Html(crate::html::command::Args),
    Symbols(symbols::Args),
    Export(crate::export::command::Args),
    Metrics(crate::metrics::command::Args),
    Config(config::Args),
    Doctor(crate::doctor::command::Args),
    Top(crate::top::command::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Parses the command line and runs the subcommand.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => crate::run::command::main(&args),
        Command::Report(args) => crate::report::command::main(&args),
        Command::Growth(args) => crate::growth::command::main(&args),
        Command::Leaks(args) => crate::leaks::command::main(&args),
        Command::Peak(args) => crate::peak::command::main(&args),
        Command::Oom(args) => crate::oom::command::main(&args),
        Command::Diff(args) => crate::diff::command::main(&args),
        Command::Phases(args) => crate::phases::command::main(&args),
        Command::Replay(args) => crate::replay::command::main(&args),
        Command::Plan(args) => crate::plan::command::main(&args),
        Command::Tune(args) => crate::tune::command::main(&args),
        Command::Drops(args) => crate::drops::command::main(&args),
        Command::Flamegraph(args) => crate::flamegraph::command::main(&args),
        Command::Timeline(args) => crate::timeline::command::main(&args),
        Command::Fragmentation(args) => crate::fragmentation::command::main(&args),
        Command::Events(args) => crate::events::command::main(&args),
        Command::Html(args) => crate::html::command::main(&args),
        Command::Symbols(args) => symbols::main(&args),
        Command::Export(args) => crate::export::command::main(&args),
        Command::Metrics(args) => crate::metrics::command::main(&args),
        Command::Config(args) => config::main(&args),
        Command::Doctor(args) => crate::doctor::command::main(&args),
        Command::Top(args) => crate::top::command::main(&args),
        Command::Completions(args) => completions::main(&args),
        Command::Man(args) => man::main(&args),
    };
    let lost = gpushim_trace::lost::all();
    lost.iter().for_each(|lost| complain(lost));
    match outcome {
        // Whatever was found was found in zeros, but a command that was run did what it did.
        Ok(Outcome::Fine | Outcome::Found) if !lost.is_empty() => ExitCode::from(2),
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Ok(Outcome::Failed) => ExitCode::from(2),
        Ok(Outcome::Code(code)) => ExitCode::from(code),
        // The reader of our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        || error
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind)
            == Some(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_subcommand_has_examples_that_parse() {
        let command = Cli::command();
        for sub in command.get_subcommands() {
            let name = sub.get_name();
            let help = sub.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let examples: Vec<_> = help
                .lines()
                .filter_map(|line| line.strip_prefix("  gpushim "))
                .collect();
            assert!(!examples.is_empty(), "no example of {name}: {help:?}");
            for example in examples {
                // What a shell would take for itself.
                let line = example.split(['#', '|', '>']).next().unwrap_or_default();
                let words = std::iter::once("gpushim").chain(line.split_whitespace());
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
                assert_eq!(example.split_whitespace().next(), Some(name));
            }
        }
        command.debug_assert();
    }
}

//! The subcommands, one file each, and what they share.
//!
//! Exit codes: 0 fine, 1 found what was asked about, 2 could not do it. `run` exits as its command
//! did.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

mod asked;
mod completions;
mod config;
mod diff;
mod doctor;
mod drops;
mod events;
mod export;
mod filter;
mod flamegraph;
mod fragmentation;
mod growth;
mod html;
mod leaks;
mod library;
mod listing;
mod man;
mod metrics;
mod oom;
mod peak;
mod phases;
mod plan;
mod progress;
mod replay;
mod report;
mod run;
mod say;
mod symbols;
mod timeline;
mod top;
mod traces;
mod tune;

use say::{complain, print_json, print_text, say, say_problems, say_wrote};

/// A caching allocator and flight recorder for GPU memory, under any CUDA process.
#[derive(Debug, Parser)]
#[command(name = "gpushim", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Report(report::Args),
    Growth(growth::Args),
    Leaks(leaks::Args),
    Peak(peak::Args),
    Oom(oom::Args),
    Diff(diff::Args),
    Phases(phases::Args),
    Replay(replay::Args),
    Plan(plan::Args),
    Tune(tune::Args),
    Fragmentation(fragmentation::Args),
    Timeline(timeline::Args),
    Flamegraph(flamegraph::Args),
    Drops(drops::Args),
    Events(events::Args),
    Html(html::Args),
    Symbols(symbols::Args),
    Export(export::Args),
    Metrics(metrics::Args),
    Config(config::Args),
    Doctor(doctor::Args),
    Top(top::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// What a subcommand found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing to complain about.
    Fine,
    /// What was asked about is there.
    Found,
    /// Some of it could not be done; said already.
    Failed,
    /// The exit code of a command that was run.
    Code(u8),
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run::main(&args),
        Command::Report(args) => report::main(&args),
        Command::Growth(args) => growth::main(&args),
        Command::Leaks(args) => leaks::main(&args),
        Command::Peak(args) => peak::main(&args),
        Command::Oom(args) => oom::main(&args),
        Command::Diff(args) => diff::main(&args),
        Command::Phases(args) => phases::main(&args),
        Command::Replay(args) => replay::main(&args),
        Command::Plan(args) => plan::main(&args),
        Command::Tune(args) => tune::main(&args),
        Command::Drops(args) => drops::main(&args),
        Command::Flamegraph(args) => flamegraph::main(&args),
        Command::Timeline(args) => timeline::main(&args),
        Command::Fragmentation(args) => fragmentation::main(&args),
        Command::Events(args) => events::main(&args),
        Command::Html(args) => html::main(&args),
        Command::Symbols(args) => symbols::main(&args),
        Command::Export(args) => export::main(&args),
        Command::Metrics(args) => metrics::main(&args),
        Command::Config(args) => config::main(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Top(args) => top::main(&args),
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

//! The command `gpushim`: its subcommands and exit codes.
//!
//! A subcommand with options of its own is in the folder of its feature. Subcommands without
//! options, and subcommands without a feature, are here.
//!
//! Exit codes: 0 no finding, 1 a finding, 2 an error. `run` ends as its program ended.

use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};

#[cfg(test)]
mod agreement;
mod completions;
mod config;
mod former;
mod groups;
mod man;
mod pack;
#[cfg(test)]
mod schema;

use crate::cli::common_args::MomentArgs;
use crate::cli::iteration_args::IterationArgs;
use crate::cli::outcome::Outcome;
use crate::cli::terminal::{Color, complain};
use crate::fragmentation::FragmentationReport;
use crate::growth::GrowthReport;
use crate::peak::PeakReport;
use crate::phases::PhasesReport;

/// Record the GPU memory of any CUDA program, find what is wrong with it, and cache it.
#[derive(Debug, Parser)]
#[command(name = "gpushim", version = gpushim_version::line(), max_term_width = 100)]
struct Cli {
    /// Colours in the output: auto has them on a terminal, unless NO_COLOR is set.
    #[arg(
        long,
        value_enum,
        default_value_t,
        global = true,
        hide_possible_values = true,
        hide_default_value = true,
        value_name = "auto|always|never"
    )]
    color: Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<crate::run::command::Args>),
    Report(crate::report::command::Args),
    /// Find out whether memory grows with each iteration, by how much, which stacks keep it, and
    /// when it runs out.
    ///
    /// Iterations are found by NVTX ranges, or by the repetition of allocations, unless --iteration
    /// sets what they begin with. Exit code 1 if memory grows.
    #[command(after_help = "Examples:
  gpushim growth train.trace
  gpushim growth --of host train.trace  # pinned host memory
  gpushim growth --iteration train_step train.trace")]
    Growth(IterationArgs),
    /// List which stacks held memory at the peak, or at any other moment.
    #[command(after_help = "Examples:
  gpushim peak train.trace
  gpushim peak --at 12.5 train.trace  # 12.5 s after the start
  gpushim peak --at end --gpu 1 train.trace")]
    Peak(MomentArgs),
    Oom(crate::oom::command::Args),
    Check(crate::check::command::Args),
    Diff(crate::diff::command::Args),
    /// Show how many bytes each NVTX range, and each iteration, allocates, keeps and frees.
    #[command(after_help = "Examples:
  gpushim phases train.trace
  gpushim phases --iteration 4MiB train.trace  # each allocation of this size begins one")]
    Phases(IterationArgs),
    Replay(crate::replay::command::Args),
    Tune(crate::tune::command::Args),
    /// Show how much reserved memory is free but unusable, a map of it, and the blocks that pin it.
    ///
    /// A segment can serve a large request, or be returned to the driver, only when all blocks in
    /// it are freed. A segment is nearly empty if at most an eighth of it is in use: its live
    /// blocks pin the rest. The moment examined is the one at which most memory was reserved, just
    /// after the request that caused it: memory that was free then could not serve that request.
    /// Segments are those of the pool, or for a framework's tensors those of the framework's cache.
    /// Exit code 1 if at least a fifth of a device's reserved memory, and at least 48 MiB, is free
    /// beside live blocks.
    #[command(after_help = "Examples:
  gpushim fragmentation run.trace
  gpushim fragmentation --at end --of memory run.trace
  gpushim fragmentation snapshot.pickle")]
    Fragmentation(MomentArgs),
    Timeline(crate::timeline::command::Args),
    Events(crate::events::command::Args),
    Html(crate::html::command::Args),
    Pack(pack::Args),
    Export(crate::export::command::Args),
    Metrics(crate::metrics::command::Args),
    Config(config::Args),
    Doctor(crate::doctor::command::Args),
    Top(crate::top::command::Args),
    Control(crate::control::command::Args),
    Demo(crate::demo::command::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Parses the command line and runs the subcommand.
#[must_use]
pub fn main() -> ExitCode {
    let words = crate::run::words::joined(std::env::args_os());
    if words.len() < 2 {
        // Code 0 would say that nothing was found: a script whose subcommand is an empty variable
        // must fail.
        groups::say_what_to_type();
        return ExitCode::from(2);
    }
    groups::color_in(&words).set();
    let matches = groups::command().try_get_matches_from(words);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => match former::successor(&error) {
            Some(successor) => {
                complain(&successor);
                return ExitCode::from(2);
            }
            None => error.exit(),
        },
    };
    cli.color.set();
    let outcome = match cli.command {
        Command::Run(args) => crate::run::command::main(&args),
        Command::Report(args) => crate::report::command::main(&args),
        Command::Growth(args) => args.each_named(GrowthReport::of),
        Command::Peak(args) => args.each(PeakReport::of),
        Command::Oom(args) => crate::oom::command::main(&args),
        Command::Check(args) => crate::check::command::main(&args),
        Command::Diff(args) => crate::diff::command::main(&args),
        Command::Phases(args) => args.each_named(PhasesReport::of),
        Command::Replay(args) => crate::replay::command::main(&args),
        Command::Tune(args) => crate::tune::command::main(&args),
        Command::Timeline(args) => crate::timeline::command::main(&args),
        Command::Fragmentation(args) => args.each(FragmentationReport::of),
        Command::Events(args) => crate::events::command::main(&args),
        Command::Html(args) => crate::html::command::main(&args),
        Command::Pack(args) => pack::main(&args),
        Command::Export(args) => crate::export::command::main(&args),
        Command::Metrics(args) => crate::metrics::command::main(&args),
        Command::Config(args) => config::main(&args),
        Command::Doctor(args) => crate::doctor::command::main(&args),
        Command::Top(args) => crate::top::command::main(&args),
        Command::Control(args) => crate::control::command::main(&args),
        Command::Demo(args) => crate::demo::command::main(&args),
        Command::Completions(args) => completions::main(&args),
        Command::Man(args) => man::main(&args),
    };
    let lost = gpushim_trace::lost::all();
    lost.iter().for_each(|lost| complain(lost));
    match outcome {
        // Findings in a truncated file are not reliable; the exit code of `run` is.
        Ok(Outcome::Fine | Outcome::Found) if !lost.is_empty() => ExitCode::from(2),
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Ok(Outcome::Failed) => ExitCode::from(2),
        Ok(Outcome::Code(code)) => ExitCode::from(code),
        Ok(Outcome::Killed(signal)) => ExitCode::from(crate::run::child::end_by(signal)),
        // The reader of the output closed the pipe.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
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
                // Leave out the parts that a shell interprets.
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

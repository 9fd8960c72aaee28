//! `gpushim check`: compares a run with limits or a baseline.

use std::path::PathBuf;

use clap::ValueEnum;

use super::baseline::Baseline;
use super::figures::figures;
use super::junit;
use super::output::{Checked, github, text};
use super::rule::Rule;
use crate::cli::common_args::{percentage, size};
use crate::cli::iteration_args::IterationArg;
use crate::cli::outcome::Outcome;
use crate::cli::terminal::{print_json, print_plain, print_text, say_problems, say_wrote};
use crate::cli::{files, progress, recordings};
use crate::error::Result;
use crate::output::envelope::Envelope;
use crate::report::Report;

/// Check a run against limits or a baseline, for CI: one line for each check.
///
/// Without a limit it checks that no iteration leaves memory behind. What a recording does not
/// tell, or not with certainty, fails no check. Exit code 1 if a check fails.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim check train.trace
  gpushim check --max-peak 20GiB --max-growth 1MiB train.trace
  gpushim check --save-baseline memory.toml train.trace
  gpushim check --baseline memory.toml --tolerance 5% train.trace
  gpushim check --no-leaks --format junit train.trace > results.xml")]
pub struct Args {
    /// Recordings, `-` for standard input; the newest trace in the current directory if none is named.
    files: Vec<PathBuf>,
    #[command(flatten)]
    iteration: IterationArg,
    /// The most that may be live on a device: tensors if the recording has any, else device memory.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_peak: Option<u64>,
    /// The most that may be reserved from the driver on a device.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_reserved: Option<u64>,
    /// The most that live memory may grow by with each iteration.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_growth: Option<u64>,
    /// No iteration may leave memory behind.
    #[arg(long)]
    no_leaks: bool,
    /// No request may run out of memory; programs may catch the error and go on.
    #[arg(long)]
    no_oom: bool,
    /// Compare with the figures of an earlier run, from this file.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Allowed surplus over the baseline.
    #[arg(long, value_name = "PERCENT", value_parser = percentage, default_value = "2%")]
    tolerance: f64,
    /// Write the figures of this run to a file, for --baseline.
    #[arg(long, value_name = "FILE")]
    save_baseline: Option<PathBuf>,
    /// Fail also if a rule cannot be told.
    #[arg(long)]
    strict: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// XML as of JUnit, which CI servers show.
    Junit,
    /// Annotations of GitHub Actions.
    Github,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let rules = args.rules()?;
    let paths = files::named_or_newest(&args.files)?;
    let (mut all, mut runs) = (Vec::new(), Vec::new());
    let outcome = recordings::each(&paths, progress::open, |_, recording| {
        say_problems(&*recording);
        let given = args.iteration.find_in_all(&*recording)?;
        let figures = figures(&Report::of(&*recording, given.as_ref()));
        all.push(Checked {
            trace: recording.path().display().to_string(),
            checks: rules.iter().flat_map(|rule| rule.check(&figures)).collect(),
        });
        runs.push(figures);
        Ok(Outcome::of(&*recording))
    })?;
    let fails = all
        .iter()
        .any(|one| one.fails() || args.strict && one.is_open());
    match args.format {
        Format::Text => print_text(&text(&all))?,
        Format::Json => print_json(&Envelope::new("check", fails, all))?,
        Format::Junit => print_plain(&junit::document(&all)?)?,
        Format::Github => print_plain(&github(&all))?,
    }
    if let Some(path) = &args.save_baseline
        && outcome == Outcome::Fine
    {
        Baseline::of(runs).save(path)?;
        say_wrote(path);
    }
    Ok(outcome.with(fails))
}

impl Args {
    fn rules(&self) -> Result<Vec<Rule>> {
        let mut rules = Vec::new();
        rules.extend(self.max_peak.map(Rule::Peak));
        rules.extend(self.max_reserved.map(Rule::Reserved));
        rules.extend(self.max_growth.map(Rule::Growth));
        rules.extend(self.no_leaks.then_some(Rule::NoLeaks));
        rules.extend(self.no_oom.then_some(Rule::NoOutOfMemory));
        if let Some(path) = &self.baseline {
            rules.push(Rule::Baseline(Baseline::load(path)?, self.tolerance));
        }
        if rules.is_empty() && self.save_baseline.is_none() {
            rules.push(Rule::NoLeaks);
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_percentages() {
        assert_eq!(size("2GiB").ok(), Some(2 << 30));
        assert!(size("much").is_err());
        assert_eq!(percentage("2%").ok(), Some(0.02));
        assert_eq!(percentage("5").ok(), Some(0.05));
        assert!(percentage("-1%").is_err());
        assert!(percentage("nan").is_err());
    }
}

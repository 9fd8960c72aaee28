//! `gpushim oom`: why requests ran out of memory.

use std::path::PathBuf;

use super::autopsy;
use super::brief::{self, Brief};
use super::text::OomReport;
use crate::cli::iteration_args::IterationArgs;
use crate::cli::outcome::Outcome;
use crate::cli::terminal::print_text;
use crate::error::Result;

/// Explain each request that ran out of memory: its size, the free memory, why it did not fit, the stacks
/// that held the rest, and what would have helped.
///
/// Exit code 1 if there is such a request.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim oom train.trace
  gpushim oom --brief train.trace      # the last request, in twelve lines
  gpushim oom --of memory train.trace  # what the driver was asked for")]
pub struct Args {
    #[command(flatten)]
    common: IterationArgs,
    /// Explain the last request only, in at most twelve lines: what GPUSHIM_AUTOPSY writes when it fails.
    #[arg(long, conflicts_with = "format")]
    brief: bool,
    /// Explain the request that this running process could not meet, on stderr and beside its trace.
    /// The library calls it so.
    #[arg(long, hide = true, value_name = "TRACE", exclusive = true)]
    autopsy: Option<PathBuf>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    if let Some(trace) = &args.autopsy {
        return Ok(autopsy::main(trace));
    }
    if !args.brief {
        return args.common.each_named(OomReport::of);
    }
    let (briefs, outcome) = args
        .common
        .find_by(brief::open, |recording, focus, given| {
            let said = Brief::of(recording, focus, given);
            let is_found = said.is_some();
            (
                is_found,
                said.map_or_else(|| brief::none(recording), |said| said.text()),
            )
        })?;
    let texts: Vec<&str> = briefs.iter().map(|(_, text)| text.as_str()).collect();
    print_text(&texts.join("\n"))?;
    let is_found = briefs.iter().any(|(is_found, _)| *is_found);
    Ok(outcome.with(is_found))
}

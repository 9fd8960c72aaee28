//! `gpushim fleet`: a job of many ranks.

use std::path::PathBuf;

use super::gather::Gathered;
use super::job::Fleet;
use super::page;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::terminal::{complain, print_json, print_text, say_wrote};
use crate::error::{Result, failed};
use crate::output::envelope::Envelope;
use crate::whole::{Readers, write_whole};

/// Compare the ranks of a job, hundreds or thousands: totals, and each rank that is unlike the
/// others, with the function.
///
/// Reads the summaries that `gpushim run` attaches to traces, and a trace where there is none or
/// where the trace goes on after it; then opens the traces of the ranks that stand out. Folders are
/// searched with those in them. Exit code 1 if a rank stands out or is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim fleet /shared/job7
  gpushim fleet --job 81234 --html job.html traces/
  gpushim fleet --keep --format json node0/ node1/")]
pub struct Args {
    /// Folders of traces and summaries, or single ones; the current directory if none is named.
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Only the job of this name or number, as its launcher gave it; the name of a job that has none.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Attach the summaries that this command made to the traces of ended processes.
    #[arg(long)]
    keep: bool,
    /// The most traces of outliers that are opened.
    #[arg(long, value_name = "N", default_value_t = 20)]
    open: usize,
    /// Write a page with a map of all ranks over time to a file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the answer in this format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let folders = match args.folders.is_empty() {
        true => vec![PathBuf::from(".")],
        false => args.folders.clone(),
    };
    let gathered = Gathered::below(&folders, args.keep)?;
    let is_whole = gathered.unreadable.is_empty();
    let mut fleets = Fleet::all(gathered, args.job.as_deref());
    if fleets.is_empty() {
        return Err(failed!(
            "find the job {}: the ranks there are of other jobs; `gpushim fleet` without --job shows them",
            args.job.as_deref().unwrap_or_default()
        ));
    }
    for fleet in &mut fleets {
        fleet.open_outliers(args.open);
    }
    if let Some(path) = &args.html {
        write_whole(path, Readers::Owner, |out| page::write(&fleets, out))
            .map_err(|error| failed!("write {}: {error}; choose another place", path.display()))?;
        say_wrote(path);
    }
    let found = fleets.iter().any(Fleet::is_found);
    let has_ranks = fleets.iter().any(|fleet| !fleet.ranks.is_empty());
    match args.format {
        Format::Json => {
            for file in fleets.iter().flat_map(|fleet| &fleet.unreadable) {
                complain(&file.why);
            }
            print_json(&Envelope::new("fleet", found, fleets))?;
        }
        Format::Text => {
            let texts: Vec<String> = fleets.iter().map(Fleet::to_string).collect();
            print_text(&texts.join("\n"))?;
        }
    }
    Ok(match (has_ranks, found, is_whole) {
        (false, ..) => Outcome::Failed,
        (_, true, _) => Outcome::Found,
        (_, _, false) => Outcome::Failed,
        _ => Outcome::Fine,
    })
}

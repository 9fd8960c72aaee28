//! `gpushim events`: the events themselves.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use super::filter::{Filter, Wanted};
use super::listing::Listing;
use crate::cli::files;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::recordings;
use crate::cli::terminal::say_problems;
use crate::error::Result;
use crate::output::envelope::Envelope;
use crate::output::escape;
use crate::recording;

/// List the events of a trace in the order in which they were recorded.
///
/// Only events that meet all of the given conditions are listed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim events --limit 100 train.trace
  gpushim events --kind alloc,free --size 100M.. train.trace    # large blocks
  gpushim events --time 1.5..2 --range forward --stacks train.trace
  gpushim events --in-stack Leaky.forward --format json train.trace
  gpushim events --address 0x7f3a5c000000 train.trace           # the life of a block")]
pub struct Args {
    /// Trace files; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    /// Print the recorded call stacks and open ranges of allocations, too.
    #[arg(long)]
    stacks: bool,
    /// The most events to list of each file.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The output format; JSON has each event on a line of its own.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let is_json = args.format == Format::Json;
    let (begin, end) = Envelope::around("events")?;
    if is_json {
        write!(out, "{begin}")?;
    }
    let mut is_first = true;
    let paths = files::named_or_newest(&args.files)?;
    let outcome = recordings::each(&paths, recording::open, |_, trace| {
        say_problems(&*trace);
        let mut listing = Listing::new(&*trace, args.stacks.then(|| trace.names()));
        if is_json {
            let path = escape::json(&serde_json::to_string(&trace.path().display().to_string())?);
            let comma = if is_first { "" } else { "," };
            write!(out, "{comma}\n{{\"trace\":{path},\"events\":[")?;
            is_first = false;
        } else {
            Listing::head(&mut out)?;
        }
        let mut comma = "";
        let mut wanted = Wanted::new(&args.filter, &*trace);
        for record in trace
            .events()
            .filter(|record| wanted.is(record))
            .take(args.limit.unwrap_or(usize::MAX))
        {
            if is_json {
                writeln!(out, "{comma}")?;
                listing.json(&record, &mut out)?;
                comma = ",";
            } else {
                listing.text(&record, &mut out)?;
            }
        }
        if is_json {
            write!(out, "]}}")?;
        }
        Ok(Outcome::of(&*trace))
    })?;
    if is_json {
        writeln!(out, "{end}")?;
    }
    out.flush()?;
    Ok(outcome)
}

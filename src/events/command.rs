//! `gpushim events`: the events themselves.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;

use super::filter::{Filter, Wanted};
use super::listing::Listing;
use crate::cli::files;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::recordings;
use crate::cli::terminal::say_problems;
use crate::recording;

/// List the events of a trace in the order in which they were recorded.
///
/// Events must meet all of the conditions that are given.
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
    /// With the call stacks and open ranges of allocations, as far as they were recorded.
    #[arg(long)]
    stacks: bool,
    /// At most this many of each file.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// How to print; JSON is one object a line.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let paths = files::named_or_newest(&args.files)?;
    let outcome = recordings::each(&paths, recording::open, |_, trace| {
        say_problems(&*trace);
        let mut listing = Listing::new(&*trace, args.stacks.then(|| trace.names()));
        if args.format == Format::Text {
            Listing::head(&mut out)?;
        }
        let mut wanted = Wanted::new(&args.filter, &*trace);
        for record in trace
            .events()
            .filter(|record| wanted.is(record))
            .take(args.limit.unwrap_or(usize::MAX))
        {
            match args.format {
                Format::Text => listing.text(&record, &mut out)?,
                Format::Json => listing.json(&record, &mut out)?,
            }
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(outcome)
}

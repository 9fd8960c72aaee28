//! `gpushim events`: the events themselves.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;
use gpushim_core::recording;
use gpushim_core::trace::{Kind, Record};

use super::listing::Listing;
use super::{Format, Outcome, complain, traces};

/// List the events of a trace in the order in which they were recorded.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace files; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    /// Only these kinds, for example `alloc,free`.
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    kind: Vec<Kind>,
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

fn kind(name: &str) -> Result<Kind, String> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| {
            let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            format!("expected one of {}", names.join(", "))
        })
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut outcome = Outcome::Fine;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for path in traces::named_or_newest(&args.files)? {
        let trace = match recording::open(&path) {
            Ok(trace) => trace,
            Err(error) => {
                complain(&error);
                outcome = Outcome::Failed;
                continue;
            }
        };
        for problem in trace.problems() {
            eprintln!("gpushim: {}: {problem}", path.display());
        }
        let mut listing = Listing::new(&*trace, args.stacks.then(|| trace.names()));
        if args.format == Format::Text {
            Listing::head(&mut out)?;
        }
        let wanted =
            |record: &Record| args.kind.is_empty() || args.kind.contains(&record.event.kind);
        for record in trace
            .events()
            .filter(wanted)
            .take(args.limit.unwrap_or(usize::MAX))
        {
            match args.format {
                Format::Text => listing.text(&record, &mut out)?,
                Format::Json => listing.json(&record, &mut out)?,
            }
        }
    }
    out.flush()?;
    Ok(outcome)
}

//! `gpushim metrics`: how much memory there is now, for a monitoring system.

use std::path::PathBuf;

use super::openmetrics::metrics;
use crate::cli::files;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::terminal::print_text;
use crate::cli::write::write_for;
use crate::error::Result;
use crate::whole::Readers;
use gpushim_config::{Config, DEFAULT_PATTERN};

/// Print how much memory running processes hold, as OpenMetrics text.
///
/// With -o the file is replaced as a whole, as a node exporter's textfile collector wants it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example, every 15 s:
  gpushim metrics -o /var/lib/node_exporter/gpushim.prom /tmp/gpushim-*.trace")]
pub struct Args {
    /// Trace files, also of running processes; all that match GPUSHIM_TRACE if none is named.
    files: Vec<PathBuf>,
    /// The file to write instead of standard output.
    #[arg(short, long, value_name = "FILE.prom")]
    output: Option<PathBuf>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let paths = if args.files.is_empty() {
        let pattern = Config::from_env().0.trace;
        files::matching(pattern.as_deref().unwrap_or(DEFAULT_PATTERN))
    } else {
        args.files.clone()
    };
    // Where nothing runs there is nothing to say, and that is fine.
    let (recordings, outcome) = recordings::all(&paths);
    let text = metrics(&recordings);
    match &args.output {
        // A collector is another user, and there is no more in it than figures of processes.
        Some(path) => write_for(
            path,
            Readers::All,
            |out| Ok(out.write_all(text.as_bytes())?),
        )?,
        None => print_text(&text)?,
    }
    Ok(outcome)
}

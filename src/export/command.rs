//! `gpushim export`: recordings in the formats of others.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::dataset;
use super::profile::Measure;
use super::write::{Format, write};
use crate::cli::files;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::write::write_whole;
use crate::error::{Result, failed};

/// Write traces in another program's format.
///
/// Reads what `report` reads: traces of gpushim, PyTorch memory snapshots, RMM logs, lists of requests.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:
  gpushim export --to perfetto -o run.pftrace gpushim-*.trace
  gpushim export --to memory-viz -o run.pickle run.trace
  gpushim export --to folded --of live run.trace | flamegraph.pl > live.svg
  gpushim export parquet --dataset lake/ /shared/job7
  gpushim export parquet --dataset lake/ --job night-7 gpushim-*.trace")]
pub struct Args {
    /// Files; the newest trace in the current directory if none is named.
    files: Vec<PathBuf>,
    /// The format.
    #[arg(long, value_enum, value_name = "FORMAT", required = true)]
    to: Option<Format>,
    /// The output: a file, or `-` for standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The unit of folded stacks.
    #[arg(long, value_enum, default_value_t)]
    of: Measure,
    #[command(subcommand)]
    tables: Option<Tables>,
}

/// Formats that are a folder of files.
#[derive(Debug, clap::Subcommand)]
enum Tables {
    Parquet(dataset::command::Args),
}

pub fn main(args: &Args) -> Result<Outcome> {
    let to = match (&args.tables, args.to) {
        (Some(Tables::Parquet(args)), _) => return dataset::command::main(args),
        (None, Some(to)) => to,
        (None, None) => return Err(failed!("write a file: name a format with --to")),
    };
    let (recordings, outcome) = recordings::all(&files::named_or_newest(&args.files)?);
    if recordings.is_empty() {
        return Ok(Outcome::Failed);
    }
    let to_stdout = args
        .output
        .as_deref()
        .is_none_or(|path| path == Path::new("-"));
    if !to_stdout {
        let path = args.output.as_deref().unwrap_or(Path::new("-"));
        write_whole(path, |out| write(to, &recordings, args.of, out))?;
        return Ok(outcome);
    }
    let is_text = matches!(to, Format::Folded | Format::Rmm | Format::Json);
    if !is_text && std::io::stdout().is_terminal() {
        return Err(failed!(
            "write this format to a terminal: name a file with -o FILE, or `-o -` into a pipe"
        ));
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    write(to, &recordings, args.of, &mut out)?;
    out.flush()?;
    Ok(outcome)
}

//! `gpushim export`: recordings in the formats of others.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::parquet::parquet;
use super::profile::Measure;
use super::write::{Format, write};
use crate::cli::files;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::terminal::say_wrote;
use crate::cli::write::write_whole;
use crate::error::{Result, failed};

/// Write traces in another program's format.
///
/// Reads what `report` reads: traces of gpushim, PyTorch memory snapshots, RMM logs, lists of requests.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim export --to perfetto -o run.pftrace gpushim-*.trace
  gpushim export --to memory-viz -o run.pickle run.trace
  gpushim export --to folded --of live run.trace | flamegraph.pl > live.svg
  gpushim export --to parquet --job night-7 -o lake/ gpushim-*.trace")]
pub struct Args {
    /// Files; the newest trace in the current directory if none is named.
    files: Vec<PathBuf>,
    /// The format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// The output: a file, or `-` for standard output; for parquet a folder.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The unit of folded stacks.
    #[arg(long, value_enum, default_value_t)]
    of: Measure,
    /// The name of the job, for parquet.
    #[arg(long, value_name = "NAME", default_value = "job")]
    job: String,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let (recordings, outcome) = recordings::all(&files::named_or_newest(&args.files)?);
    if recordings.is_empty() {
        return Ok(Outcome::Failed);
    }
    if args.to == Format::Parquet {
        let folder = args.output.as_deref().ok_or_else(|| {
            failed!("write parquet: it is a folder of files; name it with -o FOLDER")
        })?;
        for path in parquet(&recordings, folder, &args.job)? {
            say_wrote(&path);
        }
        return Ok(outcome);
    }
    let to_stdout = args
        .output
        .as_deref()
        .is_none_or(|path| path == Path::new("-"));
    if !to_stdout {
        let path = args.output.as_deref().unwrap_or(Path::new("-"));
        write_whole(path, |out| write(args.to, &recordings, args.of, out))?;
        return Ok(outcome);
    }
    let is_text = matches!(args.to, Format::Folded | Format::Rmm | Format::Json);
    if !is_text && std::io::stdout().is_terminal() {
        return Err(failed!(
            "write this format to a terminal: name a file with -o FILE, or `-o -` into a pipe"
        ));
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    write(args.to, &recordings, args.of, &mut out)?;
    out.flush()?;
    Ok(outcome)
}

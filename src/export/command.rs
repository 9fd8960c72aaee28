//! `gpushim export`: recordings in the formats of others.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::dataset::{self, Dataset};
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
///
/// `--to parquet` writes tables of events and of summaries, for DuckDB, Spark and others. Its output
/// is a folder, partitioned by job, host and rank, with a file for each process: a trace that is
/// written again replaces its files, others are left as they are. It searches folders with those in them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim export --to perfetto -o run.pftrace gpushim-*.trace
  gpushim export --to memory-viz -o run.pickle run.trace
  gpushim export --to folded --of live run.trace | flamegraph.pl > live.svg
  gpushim export --to parquet -o lake/ /shared/job7
  gpushim export --to parquet -o lake/ --job night-7 gpushim-*.trace")]
pub struct Args {
    /// Files, for `parquet` also folders; the newest trace in the current directory if none is named.
    files: Vec<PathBuf>,
    /// The format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: To,
    /// The output: a file, or `-` for standard output; for `parquet` a folder, which is made.
    #[arg(short, long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// The unit of folded stacks.
    #[arg(long, value_enum, default_value_t)]
    of: Measure,
    /// For `parquet`: the name of the job of all these processes; that which the launcher gave each
    /// if none is named.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
}

/// A format of one file, or tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    File(Format),
    Parquet,
}

impl ValueEnum for To {
    fn value_variants<'a>() -> &'a [To] {
        &[
            To::File(Format::MemoryViz),
            To::File(Format::Perfetto),
            To::File(Format::Firefox),
            To::File(Format::Pprof),
            To::File(Format::Folded),
            To::File(Format::Rmm),
            To::File(Format::Json),
            To::Parquet,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            To::File(format) => format.to_possible_value(),
            To::Parquet => Some(
                PossibleValue::new("parquet").help("Tables of events and summaries in a folder"),
            ),
        }
    }
}

pub fn main(args: &Args) -> Result<Outcome> {
    let job = args.job.as_deref();
    let to = match (args.to, job) {
        (To::Parquet, job) => {
            let folder = args.output.as_deref();
            let folder =
                folder.ok_or_else(|| failed!("write tables: name their folder with -o DIR"))?;
            return dataset::command::main(&args.files, Dataset { folder, job });
        }
        (To::File(_), Some(_)) => {
            return Err(failed!("name the job: only --to parquet has one"));
        }
        (To::File(to), None) => to,
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

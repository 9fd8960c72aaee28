//! `gpushim export`: recordings in the formats of others.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::ValueEnum;

use super::parquet::parquet;
use super::profile::Measure;
use super::write::{Format, write};
use crate::cli::files;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::terminal::say_wrote;
use crate::cli::write::write_whole;

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
    to: To,
    /// Where to write: a file, `-` for standard output; for parquet a folder.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What folded stacks count.
    #[arg(long, value_enum, default_value_t)]
    of: Of,
    /// The name of the job, for parquet.
    #[arg(long, value_name = "NAME", default_value = "job")]
    job: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    /// PyTorch's memory snapshot, for its viewer and `_memory_viz.py`.
    MemoryViz,
    /// Perfetto: counters, ranges and moments over time.
    Perfetto,
    /// Firefox Profiler: allocations and what is retained, by function.
    Firefox,
    /// Speedscope: peak, live and allocated bytes by stack.
    Speedscope,
    /// pprof: the same, gzipped protobuf.
    Pprof,
    /// A line for each stack and its bytes, for flame graphs.
    Folded,
    /// RMM's log, CSV.
    Rmm,
    /// Events as JSON, one a line, and their stacks.
    Json,
    /// A folder of Parquet files, partitioned by job and rank.
    Parquet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Bytes held when most memory was.
    #[default]
    Peak,
    /// Bytes held at the end.
    Live,
    /// Bytes allocated in all.
    Allocated,
    /// Allocations.
    Count,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let (recordings, outcome) = recordings::all(&files::named_or_newest(&args.files)?);
    if recordings.is_empty() {
        return Ok(Outcome::Failed);
    }
    let measure = match args.of {
        Of::Peak => Measure::Peak,
        Of::Live => Measure::Live,
        Of::Allocated => Measure::Allocated,
        Of::Count => Measure::Count,
    };
    let format = match args.to {
        To::MemoryViz => Format::MemoryViz,
        To::Perfetto => Format::Perfetto,
        To::Firefox => Format::Firefox,
        To::Speedscope => Format::Speedscope,
        To::Pprof => Format::Pprof,
        To::Folded => Format::Folded,
        To::Rmm => Format::Rmm,
        To::Json => Format::Json,
        To::Parquet => {
            let folder = args.output.as_deref().ok_or_else(|| {
                anyhow!("write parquet: it is a folder of files; name it with -o FOLDER")
            })?;
            for path in parquet(&recordings, folder, &args.job)? {
                say_wrote(&path);
            }
            return Ok(outcome);
        }
    };
    let to_stdout = args
        .output
        .as_deref()
        .is_none_or(|path| path == Path::new("-"));
    if !to_stdout {
        let path = args.output.as_deref().unwrap_or(Path::new("-"));
        write_whole(path, |out| write(format, &recordings, measure, out))?;
        return Ok(outcome);
    }
    let is_text = matches!(format, Format::Folded | Format::Rmm | Format::Json);
    if !is_text && std::io::stdout().is_terminal() {
        return Err(anyhow!(
            "write this format to a terminal: name a file with -o FILE, or `-o -` into a pipe"
        ));
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    write(format, &recordings, measure, &mut out)?;
    out.flush()?;
    Ok(outcome)
}

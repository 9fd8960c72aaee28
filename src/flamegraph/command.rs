//! `gpushim flamegraph`: which functions do bytes come from?

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;

use super::text::{FlameReport, flame_svg, folded_lines};
use super::weights::Weight;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::write::write_whole;
use crate::error::Result;

/// Draw a flame graph of the functions that allocated memory.
///
/// The width of a function is the bytes of the blocks that it, or a function that it called, allocated. Without
/// --svg or --folded, the functions with most bytes are listed. Several recordings are added up in one picture.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim flamegraph --svg peak.svg run.trace
  gpushim flamegraph --of temporary --svg temporary.svg run.trace
  gpushim flamegraph --of live --folded --all-frames run.trace | less")]
pub struct Args {
    /// Recordings, `-` for standard input; the newest trace in the current directory if none is named.
    files: Vec<PathBuf>,
    /// Which bytes to count.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    of: Of,
    /// Only this device.
    #[arg(long, value_name = "N")]
    gpu: Option<u8>,
    /// Write the flame graph to this SVG file, which browsers can zoom and search.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one line per stack with its bytes, for other tools.
    #[arg(long, conflicts_with = "svg")]
    folded: bool,
    /// Show the frames of allocators, runtimes and interpreters, too.
    #[arg(long)]
    all_frames: bool,
    /// The most rows of the list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// The output format of the list.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Bytes live at the end.
    Live,
    /// Bytes live at the peak.
    #[default]
    Peak,
    /// Bytes of all allocations.
    Total,
    /// Bytes freed in the iteration in which they were allocated. If no iterations are found: bytes freed before the
    /// end of the range in which they were allocated, of the thread with most ranges.
    Temporary,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let weight = match args.of {
        Of::Live => Weight::Live,
        Of::Peak => Weight::Peak,
        Of::Total => Weight::Total,
        Of::Temporary => Weight::Temporary,
    };
    let asked = CommonArgs::of(&args.files, args.gpu, args.top, args.format);
    let (reports, outcome) = asked.find(|recording, focus| {
        let names = &mut *recording.names();
        FlameReport::of(recording, focus, weight, args.all_frames, names)
    })?;
    if let Some(path) = args.svg.as_ref().filter(|_| !reports.is_empty()) {
        let text = flame_svg(&reports)?;
        write_whole(path, |out| Ok(out.write_all(text.as_bytes())?))?;
        crate::cli::terminal::say_wrote(path);
    } else if args.folded {
        let mut out = std::io::stdout().lock();
        for line in folded_lines(&reports) {
            writeln!(out, "{line}")?;
        }
    } else if args.svg.is_none() {
        asked.print(reports)?;
    }
    Ok(outcome)
}

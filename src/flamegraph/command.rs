//! `gpushim flamegraph`: which functions do bytes come from?

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::text::{FlameReport, flame_svg, folded_lines};
use super::weights::Weight;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::write::write_whole;

/// Draw which functions bytes come from, as a flame graph.
///
/// The width of a function is the bytes of the blocks that it, or a function that it called, allocated. Without
/// --svg or --folded, the functions with most bytes are listed. Several recordings come into one picture.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim flamegraph --svg peak.svg run.trace
  gpushim flamegraph --of temporary --svg temporary.svg run.trace
  gpushim flamegraph --of live --folded run.trace | less")]
pub struct Args {
    /// Recordings; the newest trace in the current directory if none is named.
    files: Vec<PathBuf>,
    /// Which bytes count.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    of: Of,
    /// Only this device.
    #[arg(long, value_name = "N")]
    gpu: Option<u8>,
    /// Draw into this file: SVG, to be zoomed and searched in any browser.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print a line for each stack and its bytes, for other tools.
    #[arg(long, conflicts_with = "svg")]
    folded: bool,
    /// Lines of the list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// How to print the list.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Bytes live at the end.
    Live,
    /// Bytes live when most was.
    #[default]
    Peak,
    /// Bytes of all allocations.
    Total,
    /// Bytes freed in the iteration in which they were allocated; where no iterations are found, before the
    /// range ended that was then the innermost of the thread that announces most.
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
        FlameReport::of(recording, focus, weight, &mut *recording.names())
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

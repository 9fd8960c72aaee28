//! `gpushim symbols`: packs the functions of a trace's stacks, to be read on another machine.

use std::path::{Path, PathBuf};

use crate::cli::files;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::terminal::{print_text, say};
use crate::error::{Context, Result};
use crate::recording::{self, Code};
use crate::symbols::{Bundle, Options};
use gpushim_trace::Trace;

/// Write the function names of a trace's stacks to a file beside it, so that they can be read on
/// machines without the program's files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim symbols train.trace             # beside it
  gpushim symbols -o job.symbols *.trace")]
pub struct Args {
    /// Trace files, also compressed by gzip; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    /// Write one file for all traces, instead of TRACE.symbols beside each.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Folders to search for libraries and their debug files, before /usr/lib/debug.
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut together = None::<Bundle>;
    let paths = files::named_or_newest(&args.files)?;
    let outcome = recordings::each(&paths, recording::open_trace, |path, trace| {
        for problem in trace.problems() {
            say(&format!("{}: {problem}", shown(path)));
        }
        let code = Code::of(&trace);
        if code.addresses.is_empty() {
            return print_text(&format!("{}: no call stacks to name\n", shown(path)));
        }
        let bundle = pack(path, &trace, code, &args.debug_dir)?;
        if args.output.is_some() {
            together.get_or_insert_default().merge(bundle);
        } else {
            save(&bundle, &Bundle::beside(&recording::plain(path)))?;
        }
        Ok(())
    })?;
    if let (Some(output), Some(bundle)) = (&args.output, together) {
        save(&bundle, output)?;
    }
    Ok(outcome)
}

fn pack(path: &Path, trace: &Trace, code: Code, debug_dirs: &[PathBuf]) -> Result<Bundle> {
    let options = Options {
        debug_dirs: debug_dirs.to_vec(),
        ..Options::default()
    };
    let mut symbolizer = code.symbolizer(trace.path(), options);
    let packed = symbolizer.pack(code.addresses.iter().copied());
    for problem in symbolizer.problems() {
        say(problem);
    }
    print_text(&format!(
        "{}: the functions of {} of {} addresses, in {} modules\n",
        shown(path),
        packed.addresses(),
        code.addresses.len(),
        packed.modules()
    ))?;
    Ok(packed)
}

fn save(bundle: &Bundle, path: &Path) -> Result<()> {
    bundle
        .save(path)
        .context(format!("write {}", path.display()))?;
    print_text(&format!("wrote {}\n", shown(path)))
}

/// A path as it may be shown.
fn shown(path: &Path) -> String {
    crate::output::escape::shown(&path.to_string_lossy())
}

//! `gpushim pack`: packs traces of which the run has ended, with their summary and the names of
//! their functions.

use std::path::{Path, PathBuf};

use crate::cli::files;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::terminal::{print_text, say};
use crate::compress::{attach, in_place};
use crate::error::{Context, Result};
use crate::fleet::{self, RankSummary};
use crate::function_names;
use crate::output::escape::shown;
use crate::output::units::bytes;
use crate::recording::{self, Opened, is_compressed, is_packed};
use crate::run::on_disk;
use crate::top::{is_in_use, running};
use gpushim_trace::Trace;
use gpushim_trace::attached::{self, Attached};
use gpushim_trace::regular::open_regular;

/// Pack traces of runs that have ended, under their names, and attach what other machines need to
/// read them: the names of the functions, and the summary.
///
/// `gpushim run` does so when the program ends. The names are found in the program's files: pack a
/// trace of `LD_PRELOAD` where these are.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim pack               # the newest trace here
  gpushim pack --no-names *.trace")]
pub struct Args {
    /// Trace files; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    /// Attach no names of functions.
    #[arg(long)]
    no_names: bool,
    /// Folders to search for libraries and their debug files, before /usr/lib/debug.
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let paths = files::named_or_newest(&args.files)?;
    recordings::each(&paths, recording::open_trace, |path, trace| {
        // A trace without facts does not name its process.
        let is_mapped = path
            .canonicalize()
            .is_ok_and(|path| running().contains(&path));
        if is_mapped || is_in_use(&trace) {
            say(&format!(
                "{} is of a process that still runs: not packed",
                path.display()
            ));
            return Ok(Outcome::Failed);
        }
        let outcome = Outcome::of(&*trace);
        pack(args, path, trace)?;
        Ok(outcome)
    })
}

/// Packs a trace, attaches what it lacks, and prints what was done.
fn pack(args: &Args, path: &Path, trace: Opened<Trace>) -> Result<()> {
    for problem in trace.problems() {
        say(&format!("{}: {problem}", shown(&path.to_string_lossy())));
    }
    let mut attachments = Vec::new();
    let mut done = String::new();
    if !args.no_names && !has(path, Attached::Symbols)? {
        let names = function_names::attachment(&trace, &args.debug_dir, |problem| say(&problem));
        if let Some((names, said)) = names {
            attachments.push(names);
            done = said;
        }
    }
    // Its pages must not be mapped when the file goes.
    drop(trace);
    if !has(path, Attached::Summary)? {
        let summary = RankSummary::read(&*recording::open(path)?);
        attachments.push(fleet::attachment(&summary)?);
    }
    let before = on_disk(path);
    match is_compressed(path) {
        true if is_packed(path) && attachments.is_empty() => {
            say(&format!("{} is packed already", path.display()));
            return Ok(());
        }
        true if is_packed(path) => attach(path, &attachments)?,
        true => {
            say(&format!(
                "{} is compressed by gzip: not packed",
                path.display()
            ));
            return Ok(());
        }
        false if in_place(path, &attachments)? => {}
        false => attach(path, &attachments)?,
    }
    print_text(&format!(
        "{}  {} → {} on disk{done}\n",
        shown(&path.to_string_lossy()),
        bytes(before),
        bytes(on_disk(path))
    ))
}

/// True if a trace has attached data of a kind.
fn has(path: &Path, kind: Attached) -> Result<bool> {
    let read = open_regular(path).and_then(|(file, _)| attached::read(&file, kind));
    Ok(read.context(format!("pack {}", path.display()))?.is_some())
}

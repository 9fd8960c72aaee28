//! `gpushim pack`: compresses traces of which the run has ended.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::cli::files;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::terminal::{print_text, say};
use crate::cli::write::write_whole;
use crate::compress::{compress, same};
use crate::error::{Context, Error, Result, failed};
use crate::output::escape::shown;
use crate::output::units::bytes;
use crate::recording::is_compressed;
use crate::run::on_disk;
use crate::top::{is_in_use, running};
use gpushim_trace::Trace;
use gpushim_trace::regular::open_regular;

/// Compress traces of runs that have ended: TRACE becomes TRACE.gz, which all subcommands read as
/// they read TRACE.
///
/// The spool of GPUSHIM_TRACE_MODE=full is compressed already: it stays beside it, and so does what
/// `gpushim symbols` wrote.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim pack               # the newest trace here
  gpushim pack --keep *.trace")]
pub struct Args {
    /// Trace files; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    /// Keep the files that were compressed.
    #[arg(short, long)]
    keep: bool,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut paths = files::named_or_newest(&args.files)?;
    // As `run` leaves them.
    for path in paths.extract_if(.., |path| is_compressed(path)) {
        say(&format!("{} is compressed already", path.display()));
    }
    if paths.is_empty() {
        return Ok(Outcome::Fine);
    }
    let open = |path: &Path| Ok(Trace::open(path)?);
    let mut outcome = Outcome::Fine;
    let opened = recordings::each(&paths, open, |path, trace| {
        // A trace without facts does not name its process.
        let is_mapped = path
            .canonicalize()
            .is_ok_and(|path| running().contains(&path));
        if is_mapped || is_in_use(&trace) {
            say(&format!(
                "{} is of a process that still runs: not packed",
                path.display()
            ));
            outcome = Outcome::Failed;
            return Ok(());
        }
        // Its pages must not be mapped when the file goes.
        drop(trace);
        let (before, after, packed) = pack(path, args.keep)?;
        let (before, after) = (bytes(before), bytes(after));
        print_text(&format!(
            "{}  {before} → {after} on disk\n",
            shown(&packed.display().to_string())
        ))
    })?;
    Ok(match opened {
        Outcome::Fine => outcome,
        other => other,
    })
}

/// Writes the compressed file, reads it back, and removes the original unless `keep` is set.
///
/// Returns the bytes on disk of both files, and the new path.
fn pack(path: &Path, keep: bool) -> Result<(u64, u64, PathBuf)> {
    let mut name = path.as_os_str().to_os_string();
    name.push(".gz");
    let packed = PathBuf::from(name);
    if packed.exists() {
        return Err(failed!(
            "pack {}: {} is there already",
            path.display(),
            packed.display()
        ));
    }
    let place = || format!("pack {}", path.display());
    let (mut file, _) = open_regular(path).context(place())?;
    let before = on_disk(path);
    write_whole(&packed, |out| compress(&mut file, out))?;
    if let Err(error) = File::open(&packed)
        .map_err(Error::from)
        .and_then(|packed| same(path, packed))
    {
        // The message is the error of the file. A failure to remove it would be another error.
        let _ = std::fs::remove_file(&packed);
        return Err(error).context(place());
    }
    let after = on_disk(&packed);
    if !keep {
        std::fs::remove_file(path).context(format!("remove {}", path.display()))?;
    }
    Ok((before, after, packed))
}

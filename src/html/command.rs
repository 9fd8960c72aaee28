//! `gpushim html`: a trace as a page to look at and to pass on.

use std::io;
use std::path::{Path, PathBuf};

use super::{browser, page};
use crate::cli::files;
use crate::cli::iteration_args::IterationArg;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::terminal::{print_text, say};
use crate::error::{Result, failed};
use crate::loops::Given;
use crate::output::escape::shown;
use crate::output::units;
use crate::recording::{self, Recording};
use crate::whole::{Readers, write_whole};

/// Write one self-contained HTML page: timeline, blocks over addresses, flame graph, tables.
///
/// Several traces, such as the ranks of one job, share one page. The page needs no network and no
/// server: open it in a browser, or send the file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim html train.trace  # writes train.html
  gpushim html --open       # the newest trace here, in the browser
  gpushim html -o job.html rank0.trace rank1.trace")]
pub struct Args {
    /// Trace files; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    #[command(flatten)]
    iteration: IterationArg,
    /// The output file; `-` is standard output [default: the trace's name with .html, in the current
    /// directory].
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Open the page in the browser.
    #[arg(long)]
    open: bool,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut opened = Vec::new();
    let paths = files::named_or_newest(&args.files)?;
    let outcome = recordings::each_on_its_own(&paths, recording::open, |_, recording| {
        let given = args.iteration.find_in_all(&*recording)?;
        opened.push((recording, given));
        Ok(())
    })?;
    let recordings: Vec<(&dyn Recording, Option<&Given>)> = opened
        .iter()
        .map(|(recording, given)| (&**recording, given.as_ref()))
        .collect();
    let Some((first, _)) = recordings.first() else {
        return Ok(outcome);
    };
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| default_path(first.path(), recordings.len()));
    if path == Path::new("-") {
        page::write_page(&recordings, &mut io::stdout().lock())?;
        return Ok(outcome);
    }
    let failed = |error: &dyn std::fmt::Display| {
        failed!(
            "write {}: {error}; choose another place with -o",
            path.display()
        )
    };
    write_whole(&path, Readers::Owner, |out| {
        page::write_page(&recordings, out)
    })
    .map_err(|error| failed(&error))?;
    let bytes = path.metadata().map_or(0, |meta| meta.len());
    let shown = shown(&path.to_string_lossy());
    print_text(&format!("{shown}, {}\n", units::bytes(bytes)))?;
    if args.open && !browser::open(&path) {
        say(&format!(
            "no browser could be started here; open {shown} in one"
        ));
    }
    Ok(outcome)
}

/// The trace's name, in the current directory; of several, a name of its own.
fn default_path(trace: &Path, count: usize) -> PathBuf {
    let name = trace.file_name().filter(|_| count == 1);
    Path::new(name.unwrap_or("gpushim".as_ref())).with_extension("html")
}

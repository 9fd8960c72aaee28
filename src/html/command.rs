//! `gpushim html`: a trace as a page to look at and to pass on.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{browser, job, page};
use crate::cli::files;
use crate::cli::iteration_args::IterationArg;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::terminal::{complain, print_text, say};
use crate::error::{Result, failed};
use crate::fleet::{Fleet, Gathered, Sorted};
use crate::loops::Given;
use crate::output::escape::shown;
use crate::output::units;
use crate::recording::{self, Recording};
use crate::whole::{Readers, folder_of, write_whole};

/// Most traces of outliers that are opened.
const OPENED: usize = 20;

/// Write one self-contained HTML page: timeline, blocks over addresses, flame graph, tables.
///
/// Several traces share one page. A folder with the ranks of a job makes the page of the job: which
/// ranks stand out, a map of all ranks over time, and links to the pages of ranks that lie beside
/// it. The page needs no network and no server: open it in a browser, or send the file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim html train.trace  # writes train.html
  gpushim html --open       # the newest trace here, in the browser
  gpushim html rank0.trace rank1.trace  # both in one page
  gpushim html -o job.html /shared/job7  # which of its ranks stand out")]
pub struct Args {
    /// Trace files, or folders; the newest trace in the current directory if none is named.
    files: Vec<PathBuf>,
    #[command(flatten)]
    iteration: IterationArg,
    /// The output file; `-` is standard output [default: the trace's name with .html, or job.html, in
    /// the current directory].
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Open the page in the browser.
    #[arg(long)]
    open: bool,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let named = files::named(&args.files)?;
    if named.iter().any(|path| path.is_dir()) {
        let ranks = Sorted::of(&named, None)?.ranks;
        if !ranks.is_empty() {
            let jobs = Fleet::all(Gathered::of(ranks, false), None);
            return write_job(args, jobs);
        }
    }
    let mut opened = Vec::new();
    let paths = files::named_or_newest(&named)?;
    let outcome = recordings::each(&paths, recording::open, |_, recording| {
        let given = args.iteration.find_in_all(&*recording)?;
        let outcome = Outcome::of(&*recording);
        opened.push((recording, given));
        Ok(outcome)
    })?;
    let recordings: Vec<(&dyn Recording, Option<&Given>)> = opened
        .iter()
        .map(|(recording, given)| (&**recording, given.as_ref()))
        .collect();
    let Some((first, _)) = recordings.first() else {
        return Ok(outcome);
    };
    let default = job::default_path(first.path(), recordings.len());
    write(args, default, |_, out| page::write_page(&recordings, out))?;
    Ok(outcome)
}

/// Writes the page of the jobs of a folder.
fn write_job(args: &Args, mut jobs: Vec<Fleet>) -> Result<Outcome> {
    for job in &mut jobs {
        job.open_outliers(OPENED);
        job.unreadable.iter().for_each(|file| complain(&file.why));
    }
    let is_whole = jobs.iter().all(|job| job.unreadable.is_empty());
    write(args, PathBuf::from("job.html"), |folder, out| {
        job::write_page(&jobs, folder, out)
    })?;
    Ok(match is_whole {
        true => Outcome::Fine,
        false => Outcome::Failed,
    })
}

/// Writes a page to the named file or to `default`. `page` gets the folder of the file.
fn write(
    args: &Args,
    default: PathBuf,
    page: impl Fn(Option<&Path>, &mut dyn Write) -> Result<()>,
) -> Result<()> {
    let path = args.output.clone().unwrap_or(default);
    if path == Path::new("-") {
        return page(None, &mut io::stdout().lock());
    }
    write_whole(&path, Readers::Owner, |out| {
        page(Some(folder_of(&path)), out)
    })
    .map_err(|error| {
        failed!(
            "write {}: {error}; choose another place with -o",
            path.display()
        )
    })?;
    let bytes = path.metadata().map_or(0, |meta| meta.len());
    let shown = shown(&path.to_string_lossy());
    print_text(&format!("{shown}, {}\n", units::bytes(bytes)))?;
    if args.open && !browser::open(&path) {
        say(&format!(
            "no browser could be started here; open {shown} in one"
        ));
    }
    Ok(())
}

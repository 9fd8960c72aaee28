//! `gpushim demo`: a sample training with a fault, recorded on a simulated driver.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::files::{self, quoted};
use super::situation::{ALL, Situation, parse};
use crate::cli::outcome::Outcome;
use crate::cli::terminal::{print_plain, print_text};
use crate::error::{Result, failed};
use crate::output::table::{Align, Table};
use crate::run::child::{self, End};

/// Record a small sample training with a memory fault, and say what gpushim finds in it.
///
/// No GPU is used: a simulated CUDA driver serves the memory. The trace is written into the current
/// directory, as that of any run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim demo                 # a layer that keeps its inputs
  gpushim demo --open          # and the recording as a page in the browser
  gpushim demo losses
  gpushim demo --list          # all situations")]
pub struct Args {
    /// The situation that is played; leaky-layer if none is named.
    #[arg(value_parser = parse, conflicts_with = "list")]
    situation: Option<&'static Situation>,
    /// Print the name of each situation, with what it shows.
    #[arg(long)]
    list: bool,
    /// Write the recording as a page (`gpushim html`), and open it in the browser.
    #[arg(long, conflicts_with = "list")]
    open: bool,
}

pub fn main(args: &Args) -> Result<Outcome> {
    if args.list {
        return list();
    }
    let [default, ..] = &ALL;
    let situation = args.situation.unwrap_or(default);
    let (folder, program) = files::find()?;
    let python = files::python()?;
    let gpushim = std::env::current_exe()?;
    let mut libraries = folder.into_os_string();
    let intro = format!(
        "{}: {}. A simulated driver serves its memory; no GPU is used.\n",
        situation.name, situation.what
    );
    print_text(&intro)?;
    let libraries_here = quoted(&libraries);
    let typed = [python.as_os_str(), program.as_os_str()]
        .map(quoted)
        .join(" ");
    let typed = format!(
        "LD_LIBRARY_PATH={libraries_here} gpushim run {typed} {}",
        situation.name
    );
    show(&typed)?;
    if let Some(more) = std::env::var_os("LD_LIBRARY_PATH").filter(|more| !more.is_empty()) {
        libraries.push(":");
        libraries.push(more);
    }
    let words = [
        "run".into(),
        python.into(),
        program.into(),
        OsString::from(situation.name),
    ];
    let ran = start(&gpushim, &words, Some(libraries))?;
    if ran != End::Code(0) {
        return Err(failed!("run the demo: the sample program ended with {ran}"));
    }
    if args.open {
        show("gpushim html --open")?;
        start(&gpushim, &["html".into(), "--open".into()], None)?;
    }
    let next = situation
        .next
        .iter()
        .chain(&["gpushim html --open", "gpushim demo --list"]);
    let next = next.filter(|line| !(args.open && line.contains("--open")));
    let next: String = next.map(|line| format!("\n  {line}")).collect();
    print_text(&format!(
        "\nNext, here:{next}\nYour own program: gpushim run python train.py\n"
    ))?;
    Ok(Outcome::Fine)
}

fn list() -> Result<Outcome> {
    let mut table = Table::new([("situation", Align::Left), ("shows", Align::Left)]);
    for one in &ALL {
        table.row([one.name.to_string(), one.what.to_string()]);
    }
    print_text(&format!(
        "{table}\ngpushim demo SITUATION plays one; {} unless named.\n",
        ALL[0].name
    ))?;
    Ok(Outcome::Fine)
}

/// Shows a command line before it is run.
fn show(line: &str) -> Result<()> {
    // Not in lines that fit: it is to be copied.
    print_plain(&format!("\n$ {line}\n"))
}

/// Runs this command with other words, and waits for it, also after Ctrl-C. Variables that leave a
/// run without a trace are not passed on.
fn start(gpushim: &Path, words: &[OsString], libraries: Option<OsString>) -> Result<End> {
    let mut command = Command::new(gpushim);
    command.args(words);
    command.env_remove("GPUSHIM");
    if std::env::var_os("GPUSHIM_TRACE").is_some_and(|value| value == "off") {
        command.env_remove("GPUSHIM_TRACE");
    }
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let ended = child::run(&mut command).map(|(_, end)| end);
    ended.map_err(|error| failed!("run {}: {error}", gpushim.display()))
}

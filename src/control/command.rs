//! `gpushim control`: its arguments and its output.

use std::path::PathBuf;

use clap::Subcommand;
use gpushim_trace::control::Request;
use gpushim_trace::layout::control::TEXT_MAX;

use super::dump;
use super::target::Target;
use crate::cli::outcome::Outcome;
use crate::cli::terminal::print_text;
use crate::error::{Result, failed};
use crate::output::escape::shown;

/// Pause or resume the recording of a running process, set a mark in its trace, record who keeps its
/// memory, or copy the trace.
///
/// The process must have been started under gpushim, and be of the same user; root may ask any. It
/// answers within a second or so: its background thread does what is asked, and the program's own
/// threads wait for nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim control 4711 pause
  gpushim control 4711 resume
  gpushim control 4711 mark after-warm-up
  gpushim control 4711 owners         # who keeps each block, in the trace
  gpushim control 4711 dump -o now.trace  # then: gpushim report now.trace")]
pub struct Args {
    /// The id of the process, as `gpushim top --once` shows it.
    pid: u32,
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Record no allocations from now on; frees of recorded blocks, ranges and failed requests are
    /// recorded on.
    Pause,
    /// Record allocations again.
    Resume,
    /// Set a mark of this name at this moment; `gpushim events --kind mark` lists them.
    Mark {
        /// The name, at most 1,024 bytes.
        name: String,
    },
    /// Record who keeps each block of device memory now: by which name the Python program reaches it.
    Owners,
    /// Copy the trace as it is at this moment, with all events that it has; the process goes on.
    Dump {
        /// The copy, an ordinary trace. If none is named: beside RUN.trace, as RUN.dump.trace.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

pub fn main(args: &Args) -> Result<Outcome> {
    let pid = args.pid;
    if let Act::Mark { name } = &args.act {
        check_name(name)?;
    }
    let target = Target::find(pid)?;
    let said = match &args.act {
        Act::Pause => match target.ask("pause", &Request::Pause)? {
            true => "recording paused".to_string(),
            false => "its recording was paused already".to_string(),
        },
        Act::Resume => match target.ask("resume", &Request::Resume)? {
            true => "recording again".to_string(),
            false => "it was recording already".to_string(),
        },
        Act::Mark { name } => {
            target.ask("set a mark in", &Request::Mark(name.clone()))?;
            format!("mark `{}` set", shown(name))
        }
        Act::Owners => {
            target.ask("record owners in", &Request::Owners)?;
            "its main thread records who keeps each block, at its next Python instruction"
                .to_string()
        }
        Act::Dump { output } => {
            let copy = output
                .clone()
                .unwrap_or_else(|| dump::beside(target.trace()));
            dump::said(&copy, dump::write(target.trace(), &copy)?)
        }
    };
    print_text(&format!("process {pid}: {said}\n"))?;
    Ok(Outcome::Fine)
}

fn check_name(name: &str) -> Result<()> {
    if name.trim().is_empty() {
        return Err(failed!(
            "set a mark without a name: give it one, as in `mark after-warm-up`"
        ));
    }
    if name.len() > TEXT_MAX {
        return Err(failed!(
            "set a mark: its name has {} bytes, and at most {TEXT_MAX} are kept; give it a shorter one",
            name.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_marks() {
        assert!(check_name("after warm-up").is_ok() && check_name(&"x".repeat(TEXT_MAX)).is_ok());
        for name in ["", "  ", &"x".repeat(TEXT_MAX + 1)] {
            let said = check_name(name).map_err(|error| error.to_string());
            assert!(said.is_err_and(|said| said.starts_with("set a mark")));
        }
    }
}

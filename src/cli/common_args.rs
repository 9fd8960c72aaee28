//! What subcommands that look into recordings have in common.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::outcome::{Format, Outcome};
use super::terminal::{print_json, print_text, say_problems};
use crate::cli::{files, progress, recordings};
use crate::ledger::{Focus, Moment};
use crate::output::finding::{Finding, Shown};
use crate::recording::Recording;
use gpushim_trace::Layer;

/// Which recordings to look into, at what, and how to print.
#[derive(Debug, clap::Args)]
pub struct CommonArgs {
    /// Recordings; the newest trace in the current directory if none is named.
    files: Vec<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What to look at.
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// Only this device.
    #[arg(long, value_name = "N")]
    gpu: Option<u8>,
    /// Whose blocks; tensors where the recording has any.
    #[arg(long, value_enum)]
    of: Option<Of>,
    /// Lines of each list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Of {
    /// A framework's tensors.
    Tensors,
    /// Memory of the devices.
    Memory,
    /// Pinned host memory.
    Host,
    /// Managed memory.
    Managed,
}

#[derive(serde::Serialize)]
struct Findings<T> {
    findings: Vec<T>,
}

impl CommonArgs {
    /// For a subcommand with an `--of` of its own: whatever layer a recording holds its memory in.
    pub fn of(files: &[PathBuf], gpu: Option<u8>, top: usize, format: Format) -> CommonArgs {
        CommonArgs {
            files: files.to_vec(),
            selection: Selection { gpu, of: None, top },
            format,
        }
    }

    /// Looks into each recording and prints what is found there.
    pub fn each<T: Finding>(
        &self,
        look: impl FnMut(&dyn Recording, Focus) -> T,
    ) -> Result<Outcome> {
        let (findings, outcome) = self.find(look)?;
        let found = findings.iter().any(Finding::is_found);
        self.print(findings)?;
        Ok(if outcome == Outcome::Fine && found {
            Outcome::Found
        } else {
            outcome
        })
    }

    /// Looks into each recording; says what is wrong with any.
    pub fn find<T>(
        &self,
        mut look: impl FnMut(&dyn Recording, Focus) -> T,
    ) -> Result<(Vec<T>, Outcome)> {
        let mut findings = Vec::new();
        let paths = files::named_or_newest(&self.files)?;
        let outcome = recordings::each(&paths, progress::open, |_, recording| {
            say_problems(&*recording);
            let focus = self.selection.focus(&*recording);
            findings.push(look(&*recording, focus));
            Ok(())
        })?;
        Ok((findings, outcome))
    }

    /// Lines of each list.
    pub fn top(&self) -> usize {
        self.selection.top
    }

    /// How it is to be printed.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Prints what was found.
    pub fn print<T: Finding>(&self, findings: Vec<T>) -> Result<()> {
        match self.format {
            Format::Json => print_json(&Findings { findings })?,
            Format::Text => {
                let texts: Vec<_> = findings
                    .iter()
                    .map(|one| Shown(one, self.selection.top).to_string())
                    .collect();
                print_text(&texts.join("\n"))?;
            }
        }
        Ok(())
    }
}

impl Selection {
    /// Whose blocks of a recording.
    pub fn focus(&self, recording: &dyn Recording) -> Focus {
        let layer = match self.of {
            None => return Focus::of(recording, self.gpu),
            Some(Of::Tensors) => Layer::Tensor,
            Some(Of::Memory) => Layer::Device,
            Some(Of::Host) => Layer::Host,
            Some(Of::Managed) => Layer::Managed,
        };
        Focus {
            layer,
            device: self.gpu,
        }
    }
}

/// Parses `12.5`, `12.5s` or `end`.
pub fn moment(text: &str) -> std::result::Result<Moment, String> {
    if text == "end" {
        return Ok(Moment::End);
    }
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>();
    let seconds = seconds.ok().filter(|seconds| (0.0..1e10).contains(seconds));
    let seconds = seconds.ok_or("expected seconds like 12.5, or end")?;
    Ok(Moment::Ns((seconds * 1e9) as u64))
}

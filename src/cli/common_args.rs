//! The common arguments of subcommands that analyse recordings.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::outcome::{Format, Outcome};
use super::terminal::{print_json, print_text, say_problems};
use crate::cli::{files, progress, recordings};
use crate::error::{Result, failed};
use crate::ledger::{Focus, Moment};
use crate::output::answer::{Answer, Shown};
use crate::output::envelope::Envelope;
use crate::recording::{Names, Recording};
use gpushim_trace::Layer;

/// Recordings to read, the memory in question, and the output format.
#[derive(Debug, clap::Args)]
pub struct CommonArgs {
    /// Recordings, `-` for standard input; the newest trace in the current directory if none is named.
    files: Vec<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// [`CommonArgs`] and a moment.
#[derive(Debug, clap::Args)]
pub struct MomentArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The moment to examine, seconds after the start or `end`, instead of the moment at which most was held.
    #[arg(long, value_name = "SECONDS", value_parser = moment)]
    at: Option<Moment>,
}

/// The memory to examine.
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// Only this device.
    #[arg(long, value_name = "N")]
    gpu: Option<u8>,
    /// Memory to examine; tensors if the recording has any.
    #[arg(long, value_enum)]
    of: Option<Of>,
    /// The most rows of each list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Of {
    /// A framework's tensors.
    Tensors,
    /// Device memory.
    Memory,
    /// Pinned host memory.
    Host,
    /// Managed memory.
    Managed,
}

impl CommonArgs {
    /// Analyses each recording and prints the answers.
    pub fn each<T: Answer>(
        &self,
        mut look: impl FnMut(&dyn Recording, Focus) -> T,
    ) -> Result<Outcome> {
        self.answer(self.find(|recording, focus| Ok(look(recording, focus)))?)
    }

    /// Prints answers, and says how the command ends.
    pub fn answer<T: Answer>(&self, (answers, outcome): (Vec<T>, Outcome)) -> Result<Outcome> {
        print_answers(answers, outcome, self.format, self.selection.top)
    }

    /// Looks into each recording as [`CommonArgs::each`] does, with the names of its stacks.
    pub fn each_named<T: Answer>(
        &self,
        mut look: impl FnMut(&dyn Recording, Focus, &mut dyn Names) -> T,
    ) -> Result<Outcome> {
        self.each(|recording, focus| look(recording, focus, &mut *recording.names()))
    }

    /// Analyses each recording. Problems and errors are printed on stderr; an error has no answer.
    pub fn find<T>(
        &self,
        look: impl FnMut(&dyn Recording, Focus) -> Result<T>,
    ) -> Result<(Vec<T>, Outcome)> {
        self.find_by(progress::open, look)
    }

    /// Does as [`CommonArgs::find`], with recordings that are opened by `open`.
    pub fn find_by<T>(
        &self,
        open: impl Fn(&Path) -> Result<Box<dyn Recording>>,
        mut look: impl FnMut(&dyn Recording, Focus) -> Result<T>,
    ) -> Result<(Vec<T>, Outcome)> {
        let mut answers = Vec::new();
        let paths = files::named_or_newest(&self.files)?;
        let outcome = recordings::each(&paths, open, |_, recording| {
            say_problems(&*recording);
            let focus = self.selection.focus(&*recording);
            answers.push(look(&*recording, focus)?);
            Ok(Outcome::of(&*recording))
        })?;
        Ok((answers, outcome))
    }

    /// Format in which the answer is printed.
    pub fn format(&self) -> Format {
        self.format
    }
}

impl MomentArgs {
    /// Looks into each recording at the moment, and prints the result.
    pub fn each<T: Answer>(
        &self,
        look: impl Fn(&dyn Recording, Focus, Moment, &mut dyn Names) -> T,
    ) -> Result<Outcome> {
        let moment = self.at.unwrap_or(Moment::Peak);
        self.common
            .each_named(|recording, focus, names| look(recording, focus, moment, names))
    }
}

impl Selection {
    /// The layer and device to examine in a recording.
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

/// Prints answers, and says how a command ends whose reading ended with `outcome`.
pub fn print_answers<T: Answer>(
    answers: Vec<T>,
    outcome: Outcome,
    format: Format,
    top: usize,
) -> Result<Outcome> {
    let found = answers.iter().any(Answer::is_found);
    match format {
        Format::Json => print_json(&Envelope::new(T::COMMAND, found, answers))?,
        Format::Text => {
            let texts = answers.iter().map(|one| Shown(one, top).to_string());
            print_text(&texts.collect::<Vec<_>>().join("\n"))?;
        }
    }
    Ok(outcome.with(found))
}

/// Parses `2GiB`, `512M`, `1.5 GB`.
pub fn size(text: &str) -> Result<u64> {
    gpushim_config::amount(text).ok_or_else(|| failed!("expected a size like 512M or 40G"))
}

/// Parses `12.5`, `12.5s` or `end`.
fn moment(text: &str) -> Result<Moment> {
    if text == "end" {
        return Ok(Moment::End);
    }
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>();
    let seconds = seconds.ok().filter(|seconds| (0.0..1e10).contains(seconds));
    let seconds = seconds.ok_or_else(|| failed!("expected seconds like 12.5, or end"))?;
    Ok(Moment::Ns((seconds * 1e9) as u64))
}

/// Parses `2%` or `2` to 0.02.
pub fn percentage(text: &str) -> Result<f64> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>();
    let number = number.ok().filter(|number| (0.0..=1e6).contains(number));
    let number = number.ok_or_else(|| failed!("expected a percentage like 1 or 2.5%"))?;
    Ok(number / 100.0)
}

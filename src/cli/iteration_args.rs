//! The arguments of subcommands that go by the iterations of a run.

use std::path::Path;

use super::common_args::CommonArgs;
use super::outcome::Outcome;
use super::progress;
use crate::error::Result;
use crate::ledger::Focus;
use crate::loops::{Given, Marker};
use crate::output::answer::Answer;
use crate::recording::{Names, Recording};

/// Beginning of an iteration.
#[derive(Debug, clap::Args)]
pub struct IterationArg {
    /// Beginning of an iteration: the name of an NVTX range, as `step`; a function in whose calls
    /// memory is allocated, as `train_step` or `Model.forward`; or the size of an allocation, as
    /// 4194304 or 4MiB [default: what repeats is looked for].
    #[arg(long, value_name = "RANGE|FUNCTION|SIZE", value_parser = Marker::parse)]
    iteration: Option<Marker>,
}

/// [`CommonArgs`] and the beginning of an iteration.
#[derive(Debug, clap::Args)]
pub struct IterationArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    iteration: IterationArg,
}

impl IterationArg {
    /// Looks for it in a recording; `None` if the user set nothing.
    ///
    /// # Errors
    /// The recording does not have it, or only once.
    pub fn find(&self, recording: &dyn Recording, focus: Focus) -> Result<Option<Given>> {
        let marker = self.iteration.as_ref();
        marker
            .map(|marker| Given::find(recording, focus, marker))
            .transpose()
    }

    /// Finds the iterations in the memory that a report begins with.
    ///
    /// # Errors
    /// As [`IterationArg::find`].
    pub fn find_in_all(&self, recording: &dyn Recording) -> Result<Option<Given>> {
        match self.iteration {
            Some(_) => self.find(recording, Focus::of(recording, None)),
            None => Ok(None),
        }
    }
}

impl IterationArgs {
    /// Analyses each recording, with the names of its stacks, and prints the answers.
    pub fn each_named<T: Answer>(
        &self,
        look: impl Fn(&dyn Recording, Focus, Option<&Given>, &mut dyn Names) -> T,
    ) -> Result<Outcome> {
        let answers = self.find(|recording, focus, given| {
            look(recording, focus, given, &mut *recording.names())
        })?;
        self.answer(answers)
    }

    /// Analyses each recording. Errors of one recording are printed on stderr.
    pub fn find<T>(
        &self,
        look: impl FnMut(&dyn Recording, Focus, Option<&Given>) -> T,
    ) -> Result<(Vec<T>, Outcome)> {
        self.find_by(progress::open, look)
    }

    /// Does as [`IterationArgs::find`], with recordings that are opened by `open`.
    pub fn find_by<T>(
        &self,
        open: impl Fn(&Path) -> Result<Box<dyn Recording>>,
        mut look: impl FnMut(&dyn Recording, Focus, Option<&Given>) -> T,
    ) -> Result<(Vec<T>, Outcome)> {
        self.common.find_by(open, |recording, focus| {
            let given = self.iteration.find(recording, focus)?;
            Ok(look(recording, focus, given.as_ref()))
        })
    }

    /// Prints answers, and says how the command ends.
    pub fn answer<T: Answer>(&self, answers: (Vec<T>, Outcome)) -> Result<Outcome> {
        self.common.answer(answers)
    }
}

//! Sudden falls of memory, in words and figures.

use std::fmt;

use serde::Serialize;

use super::fall::{Cause, Drop};
use super::find::Drops;
use crate::ledger::Focus;
use crate::loops::Iterations;
use crate::output::answer::{Answer, Subject, not_told};
use crate::output::escape::shown;
use crate::output::holder::Holder;
use crate::output::style::verdict;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, span};
use crate::recording::{CallSite, Names, Recording};

/// Falls in at least this share of the iterations are `each iteration`: the first and the last may differ.
const EACH: f64 = 0.8;

/// What `gpushim drops` finds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DropsReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// The peak of live memory, bytes.
    pub peak: u64,
    /// The smallest fall that is reported, bytes.
    pub least: u64,
    /// Iterations that were found.
    pub iterations: usize,
    /// The drops, lasting ones first.
    pub drops: Vec<DropGroup>,
    /// The lasting drops in sentences, or that there is none.
    pub verdict: String,
}

/// Drops of the same cause and stack.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DropGroup {
    /// The figures.
    #[serde(flatten)]
    pub drop: Drop,
    /// Bytes by which the largest fell.
    pub bytes: u64,
    /// Whether there is one in each iteration.
    pub each_iteration: bool,
    /// Why, in words.
    pub why: String,
    /// The call site of the free, if the recording has stacks of frees.
    pub freed: Option<CallSite>,
    /// The stacks that had allocated the blocks, those with most bytes first.
    pub of: Vec<Holder>,
}

impl DropsReport {
    /// Analyses a recording.
    pub fn of(recording: &dyn Recording, focus: Focus, names: &mut dyn Names) -> DropsReport {
        let iterations = Iterations::find(recording, focus);
        let found = Drops::of(recording, focus, iterations.as_ref());
        DropsReport::new(recording, focus, iterations.as_ref(), found, names)
    }

    /// Of drops that were found, in a run with these iterations.
    pub fn new(
        recording: &dyn Recording,
        focus: Focus,
        iterations: Option<&Iterations>,
        found: Drops,
        names: &mut dyn Names,
    ) -> DropsReport {
        let count = iterations.map_or(0, Iterations::count);
        let told = found.drops.into_iter().map(|drop| {
            let fallen = &drop.largest;
            let bytes = fallen.from.saturating_sub(fallen.to);
            let freed = Some(CallSite::of(names, fallen.freed_by));
            let freed = freed.filter(|who| !who.frames.is_empty());
            let holders = fallen.holders.iter();
            DropGroup {
                bytes,
                each_iteration: count > 0 && drop.iterations as f64 >= EACH * count as f64,
                why: why(&drop.cause, freed.as_ref()),
                of: holders.map(|held| Holder::of(names, held, bytes)).collect(),
                freed,
                drop,
            }
        });
        let mut report = DropsReport {
            subject: Subject::of(recording, focus),
            peak: found.peak,
            least: found.least,
            iterations: count,
            drops: told.collect(),
            verdict: String::new(),
        };
        report.verdict = report.sentences();
        report
    }

    /// The drops that last, those with most bytes first.
    pub fn lasting(&self) -> impl Iterator<Item = &DropGroup> {
        let all = self.drops.iter();
        all.filter(|told| told.drop.largest.lasting.is_some())
    }

    fn sentences(&self) -> String {
        if self.subject.one_moment {
            return not_told("Whether memory ever fell");
        }
        let sentences: Vec<String> = self.lasting().take(3).map(DropGroup::sentence).collect();
        if !sentences.is_empty() {
            return sentences.join(" ");
        }
        if self.drops.is_empty() {
            return format!("Memory never falls by {} at once.", bytes(self.least));
        }
        "No drop lasts: whenever memory falls it comes back, or the run is over.".to_string()
    }
}

fn why(cause: &Cause, freed: Option<&CallSite>) -> String {
    match (cause, freed) {
        (Cause::ContextReset, _) => "a context was reset or destroyed".to_string(),
        (Cause::EndOfRun, _) => "freed at the end of the run".to_string(),
        (Cause::Trimmed, _) => "cached memory was given back".to_string(),
        (Cause::Range(name), _) => format!("freed in the range `{name}`"),
        (_, Some(who)) => format!("freed by {}", who.in_a_sentence()),
        (Cause::EndOfIteration, None) => "freed between two iterations".to_string(),
        (Cause::Freed, None) => "freed by the program".to_string(),
    }
}

impl DropGroup {
    /// It in a sentence.
    pub fn sentence(&self) -> String {
        let fallen = &self.drop.largest;
        let mut text = format!("At {}", span(fallen.ns));
        if let Some(iteration) = fallen.iteration {
            text.push_str(&format!(", in iteration {iteration},"));
        }
        text.push_str(&format!(
            " memory fell by {} to {}",
            bytes(self.bytes),
            bytes(fallen.to)
        ));
        match fallen.lasting {
            Some(0) | None => {}
            Some(lasting) => {
                text.push_str(&format!(" and stays {} lower", bytes(lasting)));
            }
        }
        text.push_str(&format!(": {}", self.why));
        if let Some(holder) = self.of.first() {
            text.push_str(&format!(
                "; {} in {} blocks were of {}",
                bytes(holder.bytes),
                count(holder.blocks),
                holder.who.in_a_sentence()
            ));
        }
        text.push('.');
        text
    }

    fn when(&self) -> String {
        if self.each_iteration {
            "each iteration".to_string()
        } else if self.drop.times == 1 {
            "once".to_string()
        } else {
            format!("{} times", count(self.drop.times))
        }
    }
}

impl Answer for DropsReport {
    const COMMAND: &'static str = "drops";

    fn is_found(&self) -> bool {
        self.lasting().next().is_some()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        writeln!(f, "{}", verdict(self.is_found(), &shown(&self.verdict)))?;
        let mut table = Table::new([
            ("fell by", Align::Right),
            ("from", Align::Right),
            ("to", Align::Right),
            ("at", Align::Right),
            ("took", Align::Right),
            ("", Align::Left),
            ("lasts", Align::Left),
            ("why", Align::Left),
            ("most of it allocated by", Align::Left),
        ]);
        for told in self.drops.iter().take(top) {
            let fallen = &told.drop.largest;
            table.row([
                bytes(told.bytes),
                bytes(fallen.from),
                bytes(fallen.to),
                span(fallen.ns),
                span(fallen.took_ns),
                told.when(),
                fallen.lasting.map_or("", |_| "yes").to_string(),
                told.why.clone(),
                told.of.first().map_or(String::new(), |of| of.label()),
            ]);
        }
        if !table.is_empty() {
            write!(f, "\n{table}")?;
        }
        let first = self.lasting().next().and_then(|told| told.of.first());
        first.map_or(Ok(()), |holder| holder.way(f))
    }
}

#[cfg(test)]
mod tests;

//! Whether memory grows with each iteration, in words and figures.

use std::fmt;

use serde::Serialize;

use super::find::Growth;
use super::until_full::UntilFull;
use crate::iterations::{Followed, Given, Iterations, Recognised, in_a_sentence, in_a_table};
use crate::leaks::{Blocks, fix};
use crate::ledger::Focus;
use crate::output::answer::{Answer, Subject, not_told};
use crate::output::escape::shown;
use crate::output::holder::{Holder, labels};
use crate::output::style::{Style, marked, verdict};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent, span};
use crate::recording::{CallSite, Names, Recording};

/// Stacks with less than this share of the growth are left out of the sentence.
const MAIN: f64 = 0.05;
/// Fewer iterations say nothing.
const FEWEST: usize = 3;

/// What `gpushim growth` finds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GrowthReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// What the iterations were recognised by, and how sure they are; `None` without iterations.
    pub recognised: Option<Recognised>,
    /// The growth; `None` without iterations.
    pub growth: Option<Growth>,
    /// The stacks that keep it, those with most bytes first.
    pub keepers: Vec<KeptBy>,
    /// When memory runs out.
    pub until_full: Option<UntilFull>,
    /// The result in one or two sentences.
    pub verdict: String,
}

/// What one stack keeps.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeptBy {
    /// The call site.
    #[serde(flatten)]
    pub holder: Holder,
    /// The size of each block, bytes, where no stack was recorded.
    pub size: Option<u64>,
    /// Every how many iterations it keeps some.
    pub every: f64,
    /// What to change in the program, if the pattern is known.
    pub fix: Option<String>,
}

impl GrowthReport {
    /// Analyses a recording, if given by what the user set that its iterations begin with.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        given: Option<&Given>,
        names: &mut dyn Names,
    ) -> GrowthReport {
        let followed = Followed::of(recording, focus, given);
        let iterations = followed.iterations;
        let growth = iterations
            .as_ref()
            .map(|iterations| Growth::new(iterations, &followed.kept));
        let until_full = growth
            .as_ref()
            .and_then(|growth| UntilFull::of(recording, focus, growth));
        let subject = Subject::of(recording, focus);
        GrowthReport::new(subject, iterations.as_ref(), growth, until_full, names)
    }

    /// Of growth that was found in these iterations, and when it will be too much.
    pub fn new(
        subject: Subject,
        iterations: Option<&Iterations>,
        growth: Option<Growth>,
        until_full: Option<UntilFull>,
        names: &mut dyn Names,
    ) -> GrowthReport {
        let grown = growth.as_ref().filter(|growth| growth.grows);
        let keepers = grown.map_or(&[][..], |growth| &growth.keepers);
        let keepers: Vec<KeptBy> = keepers
            .iter()
            .map(|keeper| KeptBy {
                holder: Holder {
                    who: CallSite::of(names, keeper.stack),
                    blocks: keeper.blocks,
                    bytes: keeper.bytes,
                    per_iteration: Some(keeper.per_iteration),
                    share: keeper.share,
                    oldest_ns: None,
                    made_before: false,
                },
                size: keeper.size,
                every: keeper.every,
                fix: (keeper.size.is_none())
                    .then(|| Blocks::of(names, keeper.stack, keeper.blocks, keeper.bytes))
                    .and_then(|blocks| fix(&blocks)),
            })
            .collect();
        let mut report = GrowthReport {
            subject,
            recognised: iterations.map(|iterations| Recognised::of(iterations, names)),
            growth,
            keepers,
            until_full,
            verdict: String::new(),
        };
        report.verdict = report.sentence("Memory");
        report
    }

    /// Whether memory grows.
    pub fn grows(&self) -> bool {
        self.growth.as_ref().is_some_and(|growth| growth.grows)
    }

    /// All of it in a sentence or two, of which `what` is the subject: `Memory`.
    pub fn sentence(&self, what: &str) -> String {
        if self.subject.one_moment {
            return not_told("Whether memory grows");
        }
        let Some(growth) = &self.growth else {
            return "No iterations were found: no range that repeats, and no allocation that comes again and again. --iteration sets what they begin with.".to_string();
        };
        let recognised = self.recognised.as_ref();
        let by = recognised.map_or("", |recognised| recognised.in_words.as_str());
        let found = format!("{} iterations, by {by}", count(growth.iterations as u64));
        if let Some(why) = &growth.unsure {
            return format!(
                "It cannot be told whether memory grows: something repeats {} times, by {by}, but it is not sure that these are iterations: {why}. {what} rises by {} with each. --iteration sets what they begin with.",
                count(growth.iterations as u64),
                bytes(growth.per_iteration as u64)
            );
        }
        if growth.iterations < FEWEST {
            return format!("Whether memory grows cannot be told from {found}.");
        }
        if growth.rises {
            return format!(
                "{what} rises by {} with each of {found}; but none of them leaves blocks behind: larger ones take the place of smaller ones.",
                bytes(growth.per_iteration as u64)
            );
        }
        if !growth.grows {
            return format!("{what} does not grow: {found}.");
        }
        let mut text = format!(
            "{what} grows by {} per iteration since {} ({found}; steady from iteration {} on)",
            bytes(growth.per_iteration as u64),
            span(growth.steady_ns),
            growth.steady_from
        );
        // The kept bytes may differ from the growth: some replaced other blocks.
        let main: Vec<_> = self
            .keepers
            .iter()
            .filter(|keeper| keeper.holder.share >= MAIN)
            .take(3)
            .collect();
        let parts = main.iter().map(|keeper| {
            format!(
                "{} of it was allocated by {}",
                percent(keeper.holder.share, 1.0),
                in_a_sentence(&keeper.holder.who, keeper.size)
            )
        });
        for part in parts {
            text.push_str("; ");
            text.push_str(&part);
        }
        text.push('.');
        if let Some(until) = &self.until_full {
            text.push_str(&format!(
                " At this rate the remaining {} run out in {} iterations ({}).",
                bytes(until.bytes),
                count(until.iterations as u64),
                span(until.ns as u64)
            ));
        }
        text
    }
}

impl Answer for GrowthReport {
    const COMMAND: &'static str = "growth";

    fn is_found(&self) -> bool {
        self.grows()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        writeln!(f, "{}", verdict(self.is_found(), &shown(&self.verdict)))?;
        if let Some(recognised) = &self.recognised {
            writeln!(f, "{}", shown(&recognised.line()))?;
        }
        if !self.keepers.is_empty() {
            let mut table = Table::new([
                ("per iteration", Align::Right),
                ("kept", Align::Right),
                ("blocks", Align::Right),
                ("share", Align::Right),
                ("by", Align::Left),
            ]);
            let sites = self.keepers.iter().take(top);
            let labels = labels(sites.map(|keeper| &keeper.holder.who), "no stack recorded");
            for (keeper, label) in self.keepers.iter().zip(labels) {
                let holder = &keeper.holder;
                table.row([
                    bytes(holder.per_iteration.unwrap_or(0.0) as u64),
                    bytes(holder.bytes),
                    count(holder.blocks),
                    percent(holder.share, 1.0),
                    in_a_table(label, keeper.size),
                ]);
            }
            write!(f, "\n{table}")?;
            if let Some(first) = self.keepers.first() {
                first.holder.way(f)?;
                if let Some(fix) = &first.fix {
                    writeln!(f, "\n{}", marked(Style::Good, &format!("Fix: {fix}.")))?;
                }
            }
        }
        Ok(())
    }
}

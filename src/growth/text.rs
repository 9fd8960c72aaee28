//! Whether memory grows with each iteration, in words and figures.

use std::fmt;

use serde::Serialize;

use super::find::Growth;
use crate::iterations::{By, Iterations};
use crate::ledger::Focus;
use crate::output::finding::{Finding, Holder, Subject};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent, span};
use crate::recording::{CallSite, Names, Recording};
use gpushim_trace::Series;

/// Keepers with less than this part of the growth are left out of the sentence.
const MAIN: f64 = 0.05;

/// What `gpushim growth` finds.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthReport {
    /// Of what.
    #[serde(flatten)]
    pub subject: Subject,
    /// What the iterations were recognised by.
    pub by: Option<By>,
    /// That in words.
    pub recognised_by: Option<String>,
    /// The growth; `None` without iterations.
    pub growth: Option<Growth>,
    /// Who keeps it, the greatest first.
    pub keepers: Vec<Holder>,
    /// When it would be too much.
    pub until_full: Option<UntilFull>,
    /// All of it in a sentence or two.
    pub verdict: String,
}

/// How long memory lasts at the rate of growth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UntilFull {
    /// Bytes that are still free.
    pub bytes: u64,
    /// Iterations until they are not.
    pub iterations: f64,
    /// Ns until then.
    pub ns: f64,
}

impl GrowthReport {
    /// Looks at a recording.
    pub fn of(recording: &dyn Recording, focus: Focus, names: &mut dyn Names) -> GrowthReport {
        let iterations = Iterations::find(recording, focus);
        let growth = iterations
            .as_ref()
            .map(|iterations| Growth::of(recording, focus, iterations));
        let free = growth
            .as_ref()
            .and_then(|_| free_by_timeline(recording, focus));
        let by = iterations.map(|iterations| iterations.by);
        GrowthReport::new(Subject::of(recording, focus), by, growth, free, names)
    }

    /// Of growth that was found, what the iterations were recognised by, and how many bytes are still free.
    pub fn new(
        subject: Subject,
        by: Option<By>,
        growth: Option<Growth>,
        free: Option<u64>,
        names: &mut dyn Names,
    ) -> GrowthReport {
        let grown = growth.as_ref().filter(|growth| growth.grows);
        let keepers = grown.map_or(&[][..], |growth| &growth.keepers);
        let keepers: Vec<Holder> = keepers
            .iter()
            .map(|keeper| Holder {
                who: CallSite::of(names, keeper.stack),
                blocks: keeper.blocks,
                bytes: keeper.bytes,
                per_iteration: Some(keeper.per_iteration),
                share: keeper.share,
                oldest_ns: None,
            })
            .collect();
        let recognised_by = by.as_ref().map(|by| by.in_words(names));
        let until_full = free
            .zip(growth.as_ref())
            .and_then(|(free, growth)| until_full(free, growth));
        let mut report = GrowthReport {
            subject,
            by,
            recognised_by,
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
        let Some(growth) = &self.growth else {
            return "No iterations were found: no range that repeats, and no allocation that comes again and again.".to_string();
        };
        let by = self.recognised_by.as_deref().unwrap_or_default();
        let found = format!("{} iterations, by {by}", count(growth.iterations as u64));
        if !growth.grows {
            return format!("{what} does not grow: {found}.");
        }
        let mut text = format!(
            "{what} grows by {} per iteration since {} ({found}; steady from iteration {} on)",
            bytes(growth.per_iteration as u64),
            span(growth.steady_ns),
            growth.steady_from
        );
        // What was kept may be more or less than the growth: some of it took the place of something else.
        let main: Vec<_> = self
            .keepers
            .iter()
            .filter(|keeper| keeper.share >= MAIN)
            .take(3)
            .collect();
        let parts = main.iter().map(|keeper| {
            format!(
                "{} of it is kept by {}",
                percent(keeper.share, 1.0),
                keeper.who.in_a_sentence()
            )
        });
        for part in parts {
            text.push_str("; ");
            text.push_str(&part);
        }
        text.push('.');
        if let Some(until) = &self.until_full {
            text.push_str(&format!(
                " At this rate the {} that are free last for {} iterations more, {}.",
                bytes(until.bytes),
                count(until.iterations as u64),
                span(until.ns as u64)
            ));
        }
        text
    }
}

/// How many bytes the fullest device has free, by what the timeline ends with.
fn free_by_timeline(recording: &dyn Recording, focus: Focus) -> Option<u64> {
    let timeline = recording.timeline();
    let devices = timeline
        .devices
        .iter()
        .filter(|device| focus.device.is_none_or(|one| one == device.device));
    let free = devices.filter_map(|device| {
        let total = recording.gpu(device.device)?.bytes;
        let last = |series| device.get(series).last().map(|span| span.max);
        let used = last(Series::Driver).or_else(|| last(Series::Reserved))?;
        Some(total.saturating_sub(used))
    });
    free.min()
}

/// How long so much free memory lasts.
fn until_full(bytes: u64, growth: &Growth) -> Option<UntilFull> {
    let iterations = growth.iterations_until(bytes)?;
    Some(UntilFull {
        bytes,
        iterations,
        ns: iterations * growth.iteration_ns,
    })
}

impl Finding for GrowthReport {
    fn is_found(&self) -> bool {
        self.grows()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        writeln!(f, "{}", crate::output::escape::shown(&self.verdict))?;
        if !self.keepers.is_empty() {
            let mut table = Table::new([
                ("per iteration", Align::Right),
                ("kept", Align::Right),
                ("blocks", Align::Right),
                ("share", Align::Right),
                ("by", Align::Left),
            ]);
            for keeper in self.keepers.iter().take(top) {
                table.row([
                    bytes(keeper.per_iteration.unwrap_or(0.0) as u64),
                    bytes(keeper.bytes),
                    count(keeper.blocks),
                    percent(keeper.share, 1.0),
                    keeper.who.function_or("no stack recorded"),
                ]);
            }
            write!(f, "\n{table}")?;
            if let Some(first) = self.keepers.first() {
                first.way(f)?;
            }
        }
        Ok(())
    }
}

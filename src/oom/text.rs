//! Requests that could not be met, in words and figures.

use std::fmt;

use serde::Serialize;

use super::cause::{Cause, Situation};
use super::find::Shortage;
use super::fits::Fits;
use super::situation::situations;
use super::words;
use crate::fragmentation::Fragmentation;
use crate::growth::Growth;
use crate::ledger::{Focus, Moment};
use crate::loops::{Followed, Given, Iterations};
use crate::output::answer::{Answer, Subject, not_told};
use crate::output::escape::shown;
use crate::output::holder::{Holder, holder_labels};
use crate::output::style::{Style, marked, verdict};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent};
use crate::recording::{CallSite, Names, Recording};
use gpushim_trace::Layer;

/// What handed out memory is called of which the recording has no blocks.
const NOT_IN_RECORDING: &str = "rounding, or made before the recording began";

/// Requests whose recordings are replayed.
const TRIED: usize = 2;

/// What `gpushim oom` finds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OomReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// The requests, the first ones.
    pub shortages: Vec<ExplainedShortage>,
}

/// A request that ran out of memory, and why.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedShortage {
    /// The figures.
    #[serde(flatten)]
    pub shortage: Shortage,
    /// Why it did not fit, the cause first.
    pub causes: Vec<Cause>,
    /// What is known of the moment.
    pub situation: Situation,
    /// What would have met it, by replay.
    pub fits: Fits,
    /// In which iteration, from 0.
    pub iteration: Option<usize>,
    /// The stacks that held the rest, those with most bytes first.
    pub held_by: Vec<Holder>,
    /// The result in sentences.
    pub verdict: String,
    /// What there was, a line each.
    pub evidence: Vec<String>,
    /// What helps.
    pub advice: Vec<String>,
}

impl OomReport {
    /// Analyses a recording, if given by what the user set that its iterations begin with.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        given: Option<&Given>,
        names: &mut dyn Names,
    ) -> OomReport {
        let shortages = Shortage::all(recording, focus);
        let followed = if shortages.is_empty() {
            Followed::default()
        } else {
            Followed::of(recording, focus, given)
        };
        let grows = Growth::of(&followed).filter(|growth| growth.grows);
        let iterations = followed.iterations;
        let mut report = OomReport::new(
            recording,
            Subject::of(recording, focus),
            shortages,
            iterations.as_ref(),
            grows.as_ref(),
            names,
        );
        // Those after the first few are mostly of the same cause.
        for told in report.shortages.iter_mut().take(TRIED) {
            told.try_others(recording, names);
        }
        report
    }

    /// Of what was found, with the iterations, and how memory grows, if it does. Nothing is replayed.
    pub fn new(
        recording: &dyn Recording,
        subject: Subject,
        shortages: Vec<Shortage>,
        iterations: Option<&Iterations>,
        grows: Option<&Growth>,
        names: &mut dyn Names,
    ) -> OomReport {
        let situations = situations(recording, &shortages, grows);
        let told = shortages.into_iter().zip(situations);
        let told = told.map(|(shortage, situation)| {
            let asker = (shortage.stack != 0).then(|| CallSite::of(names, shortage.stack));
            let iteration = iterations
                .filter(|all| all.certainty.sure)
                .and_then(|all| all.of(shortage.ticket));
            let held_by = shortage
                .holders
                .iter()
                .map(|held| Holder::of(names, held, shortage.live));
            let (causes, fits) = (situation.causes(), Fits::default());
            let first = causes.first().copied().unwrap_or(Cause::Unknown);
            ExplainedShortage {
                iteration,
                held_by: held_by.collect(),
                verdict: words::verdict(&shortage, &situation, &causes, asker.as_ref(), iteration),
                evidence: words::evidence(&situation),
                advice: words::advice(first, &situation, &fits),
                shortage,
                causes,
                situation,
                fits,
            }
        });
        OomReport {
            subject,
            shortages: told.collect(),
        }
    }
}

impl ExplainedShortage {
    /// The cause.
    pub fn cause(&self) -> Cause {
        self.causes.first().copied().unwrap_or(Cause::Unknown)
    }

    /// Bytes that the allocator had handed out and no block of the recording accounts for: rounding, and blocks that
    /// were made before the recording began; `None` if they are less than a part in fifty.
    fn unknown(&self) -> Option<u64> {
        let allocated = self.situation.cache?.allocated;
        let unknown = allocated.checked_sub(self.shortage.live)?;
        (unknown > allocated / 50).then_some(unknown)
    }

    /// Replays the recording up to the request, and names the blocks that pin free memory.
    fn try_others(&mut self, recording: &dyn Recording, names: &mut dyn Names) {
        let cause = self.cause();
        self.fits = Fits::of(recording, &self.shortage, &self.situation, cause);
        self.advice = words::advice(cause, &self.situation, &self.fits);
        self.advice.extend(words::tried(&self.fits));
        let Cause::Fragmentation { of_framework, .. } = cause else {
            return;
        };
        let focus = Focus {
            layer: if of_framework {
                Layer::Tensor
            } else {
                Layer::Device
            },
            device: self.shortage.device,
        };
        let layout = Fragmentation::at(recording, focus, Moment::Ns(self.shortage.ns));
        if let Some(first) = layout.pins.first() {
            let free = (layout.pins.iter()).fold(0_u64, |sum, pin| sum.saturating_add(pin.free));
            let by = (first.stack != 0).then(|| CallSite::of(names, first.stack));
            self.advice
                .push(words::pinned(layout.pins.len(), free, by.as_ref()));
        }
    }
}

impl Answer for OomReport {
    const COMMAND: &'static str = "oom";

    fn is_found(&self) -> bool {
        !self.shortages.is_empty()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        if self.subject.one_moment && self.shortages.is_empty() {
            return writeln!(
                f,
                "{}",
                not_told("Whether a request failed for lack of memory")
            );
        }
        if self.shortages.is_empty() {
            return writeln!(f, "No request failed for lack of memory.");
        }
        for told in &self.shortages {
            writeln!(f, "{}", verdict(true, &shown(&told.verdict)))?;
            for evidence in &told.evidence {
                writeln!(f, "  {}", shown(evidence))?;
            }
            for advice in &told.advice {
                writeln!(f, "{}", marked(Style::Good, &shown(advice)))?;
            }
            let mut table = Table::new([
                ("held", Align::Right),
                ("", Align::Right),
                ("blocks", Align::Right),
                ("by", Align::Left),
            ]);
            let shown = told.held_by.iter().take(top);
            for (holder, label) in told.held_by.iter().zip(holder_labels(shown)) {
                table.row([
                    bytes(holder.bytes),
                    percent(holder.share, 1.0),
                    count(holder.blocks),
                    label,
                ]);
            }
            let rest = told.held_by.iter().skip(top);
            let (bytes_of, blocks_of) = rest.fold((0_u64, 0_u64), |(sum, blocks), holder| {
                (
                    sum.saturating_add(holder.bytes),
                    blocks.saturating_add(holder.blocks),
                )
            });
            if blocks_of > 0 {
                table.row([
                    bytes(bytes_of),
                    percent(bytes_of as f64, told.shortage.live as f64),
                    count(blocks_of),
                    "the other stacks".to_string(),
                ]);
            }
            if let Some(unknown) = told.unknown() {
                table.row([
                    bytes(unknown),
                    String::new(),
                    String::new(),
                    NOT_IN_RECORDING.to_string(),
                ]);
            }
            if !table.is_empty() {
                write!(f, "\n{table}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

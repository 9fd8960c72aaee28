//! Requests that failed, in words and figures.

use std::fmt;

use serde::Serialize;

use super::cause::Cause;
use super::explain::Explanation;
use super::figures::Situation;
use super::find::Shortage;
use super::leak::Leak;
use super::situation::situations;
use super::words;
use crate::fragmentation::Fragmentation;
use crate::growth::Growth;
use crate::ledger::Focus;
use crate::loops::{Followed, Given, Iterations};
use crate::output::answer::{Answer, Subject, not_told, unread};
use crate::output::escape::shown;
use crate::output::holder::{Holder, holder_labels};
use crate::output::owned::{self, owned};
use crate::output::style::{Style, marked, verdict};
use crate::output::table::{Align, Table, rest};
use crate::output::units::{bytes, count, percent};
use crate::recording::{CallSite, Names, Owned, Recording};
use gpushim_trace::Layer;

/// Name of allocated memory of which the recording has no blocks.
const NOT_IN_RECORDING: &str = "rounding, or made before the recording began";

/// Requests that are explained by replays; later ones mostly have the same cause.
const REPLAYED: usize = 2;

/// Answer of `gpushim oom`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OomReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// The requests, the first ones.
    pub shortages: Vec<ExplainedShortage>,
    /// Why there may have been others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<&'static str>,
}

/// A request that ran out of memory, and why.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedShortage {
    /// The figures.
    #[serde(flatten)]
    pub shortage: Shortage,
    /// The causes for which it did not fit.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// The call site of most of what iterations left behind, if that is a cause.
    pub left_by: Option<CallSite>,
    /// Facts about the moment of the failure.
    pub situation: Situation,
    /// In which iteration, from 0.
    pub iteration: Option<usize>,
    /// The stacks that held the rest, those with most bytes first.
    pub held_by: Vec<Holder>,
    /// Who kept them, those with most bytes first, as far as that was recorded.
    pub owners: Vec<Owned>,
    /// The call site that asked, if its stack was recorded.
    #[serde(skip)]
    pub asker: Option<CallSite>,
    /// Its causes in sentences.
    #[serde(skip)]
    pub because: String,
    /// The result in sentences.
    pub verdict: String,
    /// Memory at the moment, a line each.
    pub evidence: Vec<String>,
    /// What helps.
    pub advice: Vec<String>,
}

impl OomReport {
    /// Analyses a recording; `given`, if set, is what the user said iterations begin with.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        given: Option<&Given>,
        names: &mut dyn Names,
    ) -> OomReport {
        let shortages = Shortage::all(recording, focus);
        OomReport::explained(recording, focus, given, shortages, REPLAYED, names)
    }

    /// Explains the requests that were found, the first `replayed` of them by replays.
    pub(super) fn explained(
        recording: &dyn Recording,
        focus: Focus,
        given: Option<&Given>,
        shortages: Vec<Shortage>,
        replayed: usize,
        names: &mut dyn Names,
    ) -> OomReport {
        let followed = if shortages.is_empty() {
            Followed::default()
        } else {
            Followed::of(recording, focus, given)
        };
        let grows = Growth::of(&followed).filter(|growth| growth.grows);
        let iterations = followed.iterations;
        OomReport::new(
            recording,
            Subject::of(recording, focus),
            shortages,
            iterations.as_ref(),
            grows.as_ref(),
            replayed,
            names,
        )
    }

    /// Explains the requests that were found, with the iterations and the growth: the first
    /// `replayed` ones by replays.
    pub fn new(
        recording: &dyn Recording,
        subject: Subject,
        shortages: Vec<Shortage>,
        iterations: Option<&Iterations>,
        grows: Option<&Growth>,
        replayed: usize,
        names: &mut dyn Names,
    ) -> OomReport {
        let leak = |one| grows.map_or_else(Leak::default, |grows| Leak::of(recording, grows, one));
        let leaks: Vec<Leak> = shortages.iter().map(leak).collect();
        let situations = situations(recording, &shortages, &leaks);
        let told = shortages.into_iter().zip(leaks).zip(situations).enumerate();
        let told = told.map(|(index, ((shortage, leak), situation))| {
            let explanation = match index < replayed {
                true => Explanation::by_replay(recording, &shortage, &situation, &leak),
                false => Explanation::by_figures(&situation),
            };
            let asker = (shortage.stack != 0).then(|| CallSite::of(names, shortage.stack));
            let mut causes = explanation.causes.iter();
            let is_leak = causes.any(|cause| matches!(cause, Cause::Growth { .. }));
            let left_by = (is_leak && leak.stack != 0).then(|| CallSite::of(names, leak.stack));
            let iteration = iterations
                .filter(|all| all.certainty.sure)
                .and_then(|all| all.of(shortage.ticket));
            let holders = shortage.holders.iter();
            let holders = holders.map(|held| Holder::of(recording, names, held, shortage.live));
            let held_by: Vec<Holder> = holders.collect();
            let sentences = words::Sentences {
                shortage: &shortage,
                situation: &situation,
                explanation: &explanation,
                left_by: left_by.as_ref(),
                asker: asker.as_ref(),
                held_by: &held_by,
            };
            let owners = owned(recording, &shortage.blocks);
            let mut told = ExplainedShortage {
                owners,
                iteration,
                because: sentences.because(),
                verdict: sentences.verdict(iteration),
                evidence: sentences.evidence(),
                advice: sentences.advice(),
                held_by,
                asker,
                left_by,
                shortage,
                explanation,
                situation,
            };
            if index < replayed {
                told.name_pins(recording, names);
            }
            told
        });
        OomReport {
            subject,
            shortages: told.collect(),
            unread: unread(recording),
        }
    }
}

impl ExplainedShortage {
    /// Returns the call site that the request failed for, as far as it is known. It left most
    /// memory behind, or else held most.
    pub fn site(&self) -> Option<&CallSite> {
        let mut holders = self.held_by.iter().map(|holder| &holder.who);
        let holder = holders.find(|site| site.function.is_some());
        self.left_by.as_ref().or(holder)
    }

    /// Returns the allocated bytes that no block of the recording explains: rounding, and blocks
    /// made before the recording began. Returns `None` if they are less than a part in fifty.
    fn unknown(&self) -> Option<u64> {
        let allocated = self.situation.cache?.allocated;
        let unknown = allocated.checked_sub(self.shortage.live)?;
        (unknown > allocated / 50).then_some(unknown)
    }

    /// Names the blocks that pin free memory, if fragmentation is the cause.
    fn name_pins(&mut self, recording: &dyn Recording, names: &mut dyn Names) {
        let Cause::Fragmentation { of_framework, .. } = self.explanation.cause() else {
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
        let (ticket, ns) = (self.shortage.ticket, self.shortage.ns);
        let layout = Fragmentation::before(recording, focus, ticket, ns);
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
            return match self.unread {
                None => writeln!(f, "No request failed for lack of memory."),
                Some(why) => writeln!(
                    f,
                    "No request failed for lack of memory in what can be read: {why}."
                ),
            };
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
            let hidden = told.held_by.iter().skip(top);
            if let Some((bytes_of, blocks_of)) = rest(hidden.map(|one| (one.bytes, one.blocks))) {
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
            owned::table(f, &told.owners, told.shortage.live, top)?;
            writeln!(f)?;
        }
        Ok(())
    }
}

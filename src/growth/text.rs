//! Growth of memory with the passes of a loop, in words and figures.

use std::fmt;

use serde::Serialize;

use super::blocks::Blocks;
use super::find::{Growth, Keeper};
use super::fix::fix;
use super::until_full::UntilFull;
use crate::ledger::Focus;
use crate::loops::{By, Followed, Given, Iterations, Judgement, Recognised, Told};
use crate::output::answer::{Answer, DAMAGED, Subject, not_told};
use crate::output::escape::shown;
use crate::output::holder::{Holder, kept_by, labels};
use crate::output::style::{Style, marked, verdict};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent, span};
use crate::recording::{CallSite, Names, Recording};

/// Number of letters of a function's name in the sentence.
const FUNCTION: usize = 48;
/// Part of the growth of a stack that a fix must fit.
const MAIN: f64 = 0.05;

/// Answer of `gpushim growth`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GrowthReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// The loop, and how it was recognised; `None` without one.
    pub recognised: Option<Recognised>,
    /// The growth; `None` without a loop.
    pub growth: Option<Growth>,
    /// The certainty of the verdict.
    pub judgement: Judgement,
    /// The stacks that keep it, those with most bytes first.
    pub keepers: Vec<KeptBy>,
    /// The change to make in the program, if one pattern fits all keepers.
    pub fix: Option<String>,
    /// When memory runs out.
    pub until_full: Option<UntilFull>,
    /// The result in a sentence.
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
    /// Every how many passes it keeps some.
    pub every: f64,
}

impl GrowthReport {
    /// Analyses a recording; `given`, if set, is what the user said iterations begin with.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        given: Option<&Given>,
        names: &mut dyn Names,
    ) -> GrowthReport {
        let followed = Followed::of(recording, focus, given);
        GrowthReport::new(recording, focus, &followed, true, names)
    }

    /// Reports followed blocks. `is_open` is true if the time until memory is full is to be
    /// predicted.
    pub fn new(
        recording: &dyn Recording,
        focus: Focus,
        followed: &Followed,
        is_open: bool,
        names: &mut dyn Names,
    ) -> GrowthReport {
        let growth = Growth::of(followed);
        let until_full = growth.as_ref().filter(|_| is_open);
        let until_full = until_full.and_then(|growth| UntilFull::of(recording, focus, growth));
        let iterations = followed.growth.as_ref().map(|(iterations, _)| iterations);
        let iterations = iterations.or(followed.iterations.as_ref());
        let keepers = growth.as_ref().map_or(&[][..], |growth| &growth.keepers);
        let subject = Subject::of(recording, focus);
        let judgement = match &growth {
            Some(growth) if !growth.is_found() && recording.coverage().damaged => {
                Judgement::not_seen(DAMAGED.to_string())
            }
            Some(growth) => growth.judgement.clone(),
            None => Judgement::not_seen(why_none(&subject, followed)),
        };
        let mut report = GrowthReport {
            subject,
            recognised: iterations.map(|iterations| Recognised::of(iterations, names)),
            fix: fix_of(recording, keepers, names),
            keepers: merged(
                keepers
                    .iter()
                    .map(|keeper| KeptBy::of(recording, keeper, names)),
            ),
            judgement,
            growth,
            until_full,
            verdict: String::new(),
        };
        report.verdict = report.sentence(iterations, "Memory");
        report
    }

    /// Returns true if memory grows, surely or likely.
    pub fn grows(&self) -> bool {
        self.growth.as_ref().is_some_and(Growth::is_found)
    }

    /// Returns all of it in a sentence. `what` is its subject if no function is known: `Memory`.
    pub fn sentence(&self, iterations: Option<&Iterations>, what: &str) -> String {
        if self.subject.one_moment {
            return not_told("Whether memory grows");
        }
        let why = &self.judgement.why;
        let Some(growth) = self.growth.as_ref().filter(|growth| growth.is_found()) else {
            return match self.judgement.told {
                Told::Sure | Told::Likely => {
                    let loops = self.recognised.as_ref().map_or("", |one| &one.in_words);
                    let passes = self.growth.as_ref().map_or(0, |growth| growth.iterations);
                    format!(
                        "{what} does not grow: {} passes of {loops}.",
                        count(passes as u64)
                    )
                }
                Told::TooFewPasses => {
                    format!("Too few passes to tell whether memory grows: {why}.")
                }
                Told::NotSeen => format!("Whether memory grows is not seen: {why}."),
            };
        };
        let Some(first) = growth.keepers.first() else {
            return String::new();
        };
        let pass = match iterations.map(|all| &all.by) {
            Some(By::Range(name)) => format!("`{}`", name.trim_matches(['#', ' ', '_', '-'])),
            _ => "pass".to_string(),
        };
        let (some, all) = first.rises;
        let who = self.keepers.first().map_or(String::new(), KeptBy::in_words);
        let others = self.keepers.len().saturating_sub(1);
        let (who, keeps) = match (others, first.is_anew) {
            (0, true) => (who, "makes its memory larger by"),
            (0, false) => (who, "keeps"),
            (1, _) => (format!("{who} and 1 other"), "keep"),
            (more, _) => (format!("{who} and {more} others"), "keep"),
        };
        let rate = bytes(growth.per_iteration.round() as u64);
        format!("{who} {keeps} {rate} in each {pass} ({some} of {all})")
    }

    /// Names the owner of the memory that grows most, in words, if recorded.
    pub fn kept_by(&self) -> Option<String> {
        let owned = self.keepers.first()?.holder.kept_by.as_ref()?;
        Some(owned.owner.in_words())
    }

    /// Returns the time until memory is full at this rate, in words.
    pub fn until(&self) -> Option<String> {
        let until = self.until_full.as_ref()?;
        Some(format!(
            "{} are free, which lasts {} more passes ({})",
            bytes(until.bytes),
            count(until.iterations as u64),
            span(until.ns as u64)
        ))
    }
}

impl KeptBy {
    fn of(recording: &dyn Recording, keeper: &Keeper, names: &mut dyn Names) -> KeptBy {
        KeptBy {
            holder: Holder {
                who: CallSite::of(names, keeper.stack),
                blocks: keeper.blocks,
                bytes: keeper.bytes,
                per_iteration: Some(keeper.per_iteration),
                share: keeper.share,
                oldest_ns: None,
                made_before: false,
                kept_by: kept_by(recording, keeper.stack),
            },
            size: keeper.size,
            every: keeper.every,
        }
    }

    /// Returns the function, or the size of blocks without a stack, in words.
    fn in_words(&self) -> String {
        match (self.size, &self.holder.who.function) {
            (Some(size), _) => format!("an allocation of {} without a stack", bytes(size)),
            (None, Some(function)) => {
                let name = crate::cut::shortened(&function.in_a_sentence(), FUNCTION);
                format!("`{name}`")
            }
            (None, None) => "an allocation without a stack".to_string(),
        }
    }
}

/// Finds the change to the program that fits every main keeper. `None` if one has no stack, or
/// no change fits.
fn fix_of(recording: &dyn Recording, keepers: &[Keeper], names: &mut dyn Names) -> Option<String> {
    let main = keepers.iter().filter(|keeper| keeper.share >= MAIN);
    let main = main.map(|keeper| {
        keeper.size.is_none().then(|| {
            let blocks = Blocks::of(names, keeper.stack, keeper.blocks, keeper.bytes);
            let blocks = blocks.anew(keeper.is_anew).rare(keeper.every > 1.0);
            blocks.owned(kept_by(recording, keeper.stack))
        })
    });
    fix(&main.collect::<Option<Vec<Blocks>>>()?)
}

fn why_none(subject: &Subject, followed: &Followed) -> String {
    match &followed.inside {
        _ if subject.one_moment => "the recording is of one moment".to_string(),
        Some(call) => format!("all that comes again is inside one call of `{call}`"),
        None => "nothing comes again often enough to be a pass of a loop".to_string(),
    }
}

/// Joins rows of the same function and line.
fn merged(all: impl Iterator<Item = KeptBy>) -> Vec<KeptBy> {
    let mut rows: Vec<KeptBy> = Vec::new();
    for one in all {
        let is_same = |row: &&mut KeptBy| {
            row.size == one.size && row.holder.who.function == one.holder.who.function
        };
        match rows.iter_mut().find(is_same) {
            Some(row) => {
                row.holder.add(&one.holder);
                row.every = row.every.min(one.every);
            }
            None => rows.push(one),
        }
    }
    let rate = |row: &KeptBy| row.holder.per_iteration.unwrap_or(0.0);
    rows.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    rows
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
        if self.grows() {
            let sure = if self.judgement.told == Told::Sure {
                "Sure"
            } else {
                "Likely"
            };
            writeln!(f, "{sure}: {}.", shown(&self.judgement.why))?;
        }
        if let Some(owner) = self.kept_by() {
            writeln!(f, "Kept by {}.", shown(&owner))?;
        }
        if let Some(until) = self.until() {
            writeln!(f, "{until}.")?;
        }
        if !self.keepers.is_empty() {
            let mut table = Table::new([
                ("per pass", Align::Right),
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
                    bytes(holder.per_iteration.unwrap_or(0.0).round() as u64),
                    bytes(holder.bytes),
                    count(holder.blocks),
                    percent(holder.share, 1.0),
                    match keeper.size {
                        Some(size) => format!("blocks of {}, no stack recorded", bytes(size)),
                        None => label,
                    },
                ]);
            }
            write!(f, "\n{table}")?;
            if let Some(first) = self.keepers.first() {
                first.holder.way(f)?;
            }
            if let Some(fix) = &self.fix {
                writeln!(f, "\n{}", marked(Style::Good, &format!("Fix: {fix}.")))?;
            }
        }
        Ok(())
    }
}

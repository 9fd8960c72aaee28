//! The loops of a run that may be its iterations, and the chosen one.

use std::cmp::Reverse;

use crate::repeats::{Loop, Moment};
use rustc_hash::FxHashSet;

use super::beginning::Beginning;
use super::certainty::Certainty;
use super::locate::Locator;
use super::marker::is_function;
use super::place::Surroundings;
use super::ranges::says_iteration;
use super::span::Span;
use super::{By, Given, Iterations, LEAST};
use crate::ledger::Focus;
use gpushim_recording::Recording;
use gpushim_recording::symbols::Symbol;

/// Loops whose names are looked up: the ones with most events.
const NAMED: usize = 48;
/// Loops through whose passes blocks are followed.
const FOLLOWED: usize = 12;
/// The least part of the run's events that a loop must cover to be a candidate.
const COVERS: f64 = 0.2;
/// The least part of the run's events that the chosen loop must cover.
const COVERS_MOST: f64 = 0.5;
/// Part of the best score, by coverage and likeness of passes, at which a loop is still good.
const NEARLY: f64 = 0.6;
/// A pass is as long as usual if its events differ from the median by this part.
const ALIKE: f64 = 0.15;

/// A loop that may be the iterations of a run.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The beginnings of its passes.
    pub passes: Loop,
    /// The mark by which it is known.
    pub by: By,
    /// The certainty that its passes are no parts of one.
    pub certainty: Certainty,
    /// True if the user wrote the looping function, or announced the range.
    pub is_own: bool,
}

/// The loops of a run that may be iterations.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Candidates for its iterations, the likeliest level last.
    pub all: Vec<Candidate>,
    /// The number of the chosen candidate.
    main: Option<usize>,
    /// The number of the last allocation.
    pub last: u64,
    end: Moment,
    /// A call of one pass around all loops that were found.
    pub inside: Option<String>,
}

impl Found {
    /// Looks for the beginning that the user set.
    pub fn given(recording: &dyn Recording, given: &Given) -> Found {
        let (passes, last, end) =
            Locator::new(given.beginning.clone(), given.focus).locate(recording);
        let certainty = match given.is_certain {
            true => Certainty::set(),
            false => within(recording, given),
        };
        Found {
            main: Some(0),
            all: vec![Candidate {
                passes,
                by: given.by.clone(),
                certainty,
                is_own: true,
            }],
            last,
            end,
            inside: None,
        }
    }

    /// Collects the candidates of a search.
    pub(super) fn new(
        (recording, focus): (&dyn Recording, Focus),
        span: Span,
        walked: Vec<Loop>,
        ranges: Vec<(String, Loop)>,
        by_size: impl FnOnce() -> Option<By>,
    ) -> Found {
        let mut found = Found {
            last: span.last.ticket,
            end: span.after(),
            ..Found::default()
        };
        found.of_stacks(recording, span, walked);
        found.of_ranges(span, ranges);
        if found.all.is_empty()
            && let Some(by) = by_size()
        {
            let (passes, ..) =
                Locator::new(Beginning::Allocation(by.clone()), focus).locate(recording);
            found.all.push(Candidate {
                passes,
                by,
                certainty: Certainty::unsure("without stacks, only sizes that come again tell"),
                is_own: false,
            });
        }
        found.main = found.choose(span);
        found
    }

    fn of_stacks(&mut self, recording: &dyn Recording, span: Span, mut walked: Vec<Loop>) {
        walked.retain(|one| one.covered as f64 >= COVERS * span.events() as f64);
        walked.sort_by_key(|one| Reverse(one.covered));
        walked.truncate(NAMED);
        if walked.is_empty() {
            return;
        }
        let names = &mut *recording.names();
        let walked: Vec<_> = (walked.into_iter())
            .map(|passes| (Surroundings::of(names, passes.path, passes.depth), passes))
            .collect();
        let known = walked.iter().filter(|(_, passes)| passes.above == 0);
        let known = known.filter_map(|(calls, _)| calls.function().map(place));
        let known: FxHashSet<Place> = known.collect();
        for (calls, mut passes) in walked {
            if passes.above > 0 && !calls.is_in_optimizer() {
                let innermost = calls.depth(passes.above, |_| false);
                let is_known = |symbol: &Symbol| known.contains(&place(symbol));
                passes.depth = match calls.up_to(innermost).one_pass() {
                    Some(_) => innermost,
                    None => calls.depth(passes.above, is_known),
                };
            }
            let calls = calls.up_to(passes.depth);
            if let Some(call) = calls.one_pass() {
                self.inside = Some(call.function.clone());
                continue;
            }
            let function = calls.function().map(|symbol| symbol.function.clone());
            let is_around = passes.above > 0;
            let why = match function {
                Some(function) if is_around => {
                    format!("each is one pass of a loop around `{function}`")
                }
                Some(function) => format!("each is one pass of a loop in `{function}`"),
                None => "each is a thread that does the same".to_string(),
            };
            self.all.push(Candidate {
                by: By::Loop {
                    stack: passes.path,
                    depth: passes.depth as u32,
                    is_around,
                },
                certainty: Certainty::sure(why),
                is_own: calls.is_own(),
                passes,
            });
        }
        self.all.truncate(FOLLOWED);
        self.all.sort_by_key(|one| {
            let passes = &one.passes;
            let first = passes.starts.first().copied();
            (
                one.is_own,
                !passes.is_other,
                passes.depth,
                passes.count,
                first,
            )
        });
    }

    fn of_ranges(&mut self, span: Span, ranges: Vec<(String, Loop)>) {
        for (name, passes) in ranges {
            let is_iteration = says_iteration(&name);
            let has_loops = self.all.iter().any(|one| one.is_own);
            if passes.count < LEAST || !is_iteration && has_loops {
                continue;
            }
            let covers = passes.covered as f64 >= COVERS * span.events() as f64;
            let candidate = Candidate {
                certainty: match is_iteration {
                    true => Certainty::sure("the range's name says so"),
                    false => Certainty::sure("the program announces each by a range"),
                },
                by: By::Range(name),
                passes,
                is_own: true,
            };
            match is_iteration {
                true => self.all.push(candidate),
                false if covers => self.all.insert(0, candidate),
                false => {}
            }
        }
    }

    /// Chooses the iterations: a range whose name marks an iteration, or the innermost loop around
    /// most of the run.
    fn choose(&self, span: Span) -> Option<usize> {
        let says = |one: &Candidate| matches!(&one.by, By::Range(name) if says_iteration(name));
        let rank = |one: &Candidate| {
            let covers = one.passes.covered as f64 >= COVERS_MOST * span.events() as f64;
            let depth = if one.is_own { one.passes.depth } else { 0 };
            (says(one), covers, one.is_own, !one.passes.is_other, depth)
        };
        let best = self.all.iter().map(rank).max()?;
        let of_rank = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, one)| rank(one) == best);
        let scored = of_rank.map(|(number, one)| {
            let covers = one.passes.covered as f64 / span.events() as f64;
            (number, one.passes.count, covers * alike(&one.passes))
        });
        let scored: Vec<(usize, u64, f64)> = scored.collect();
        let best = scored.iter().map(|(.., score)| *score).fold(0.0, f64::max);
        let good = scored.iter().filter(|(.., score)| *score >= NEARLY * best);
        good.max_by_key(|(number, count, _)| (*count, Reverse(*number)))
            .map(|(number, ..)| *number)
    }

    /// Returns the iterations of the run.
    pub fn iterations(&self) -> Option<Iterations> {
        self.iterations_of(self.main?)
    }

    /// Returns the passes of a candidate as iterations.
    pub fn iterations_of(&self, number: usize) -> Option<Iterations> {
        let one = self.all.get(number)?;
        let end = one.passes.end.unwrap_or(self.end);
        let starts = one.passes.starts.iter().copied().chain([end]);
        Some(Iterations {
            by: one.by.clone(),
            starts: starts.collect(),
            certainty: one.certainty.clone(),
        })
    }

    /// Returns the number of the candidate that was chosen.
    pub fn main(&self) -> Option<usize> {
        self.main
    }
}

/// A function: its name, and its file.
type Place = (String, Option<String>);

fn place(symbol: &Symbol) -> Place {
    (symbol.function.clone(), symbol.file.clone())
}

/// Judges calls of a function that follow each other with nothing in between: they may be parts of
/// one pass.
fn within(recording: &dyn Recording, given: &Given) -> Certainty {
    let (By::Function(name), Beginning::Allocation(By::Stack(stack))) =
        (&given.by, &given.beginning)
    else {
        return Certainty::set();
    };
    let names = &mut *recording.names();
    let calls =
        Surroundings::of(names, *stack, usize::MAX).down_to(|symbol| is_function(symbol, name));
    match calls.one_pass() {
        None => Certainty::set(),
        Some(call) => Certainty {
            set: true,
            ..Certainty::unsure(format!(
                "they repeat inside one call of `{}`",
                call.function
            ))
        },
    }
}

/// Measures the likeness of a loop's passes: the part with usual length, times the part of the
/// events in them.
fn alike(passes: &Loop) -> f64 {
    let starts = passes.starts.windows(2);
    let mut lengths: Vec<u64> = starts
        .filter_map(|pair| Some(pair.last()?.ticket.saturating_sub(pair.first()?.ticket)))
        .collect();
    lengths.sort_unstable();
    let sum: u64 = lengths.iter().sum();
    let mut before = 0;
    // The length of the pass to which the middle event belongs.
    let usual = lengths.iter().find(|length| {
        before += **length;
        before * 2 >= sum
    });
    let usual = usual.copied().unwrap_or(0) as f64;
    let near = |length: &&u64| (**length as f64 - usual).abs() <= ALIKE * usual;
    let (passes, events) = (
        lengths.iter().filter(near),
        lengths.iter().filter(near).sum::<u64>(),
    );
    passes.count() as f64 / lengths.len().max(1) as f64 * (events as f64 / sum.max(1) as f64)
}

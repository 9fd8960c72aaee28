//! Checks a choice on data that it was not made from. The choice is repeated without a part of the
//! data, and its result is compared with the best one on that part.

use serde::Serialize;

use super::candidate::Candidate;
use super::choice::choose;
use super::cost::Cost;
use super::recorded::{Recorded, Tried};
use super::search::{Job, Run};
use crate::replay::ReplayDevice;
use gpushim_analysis::requests::Requests;

/// Fewest iterations in a half; a half with fewer is not checked.
const LEAST: usize = 2;
/// Bounds of [`Level::Sure`], in percent:
///
/// 1. Memory that the chosen settings take beyond the best.
/// 2. Difference of the peak from the predicted one.
const SURE: (f64, f64) = (1.0, 2.0);
/// Bounds of [`Level::FairlySure`], in percent:
///
/// 1. Memory that the chosen settings take beyond the best.
/// 2. Difference of the requested memory between the parts.
/// 3. Difference of the peak from a prediction that is scaled by the requested memory.
const FAIRLY: (f64, f64, f64) = (3.0, 25.0, 5.0);

/// How sure an advice is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Little was recorded, or its parts differ much.
    #[default]
    Guess,
    /// Parts of it differ a little.
    FairlySure,
    /// It does not matter which part it was chosen by.
    Sure,
}

/// The data that is held out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Parts {
    /// There is one part only.
    #[default]
    None,
    /// There was no time.
    NoTime,
    /// The first half of the iterations and the second.
    Halves,
    /// Each recording, and all others.
    Recordings,
}

/// A choice that was made by one part and tried on another.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// The choice by the one part.
    pub chosen: String,
    /// The choice by the other.
    pub best: String,
    /// Bytes that the chosen one holds at most in the part that it was chosen by.
    pub predicted: u64,
    /// Bytes that it holds at most in the other part.
    pub seen: u64,
    /// Bytes of the device that it takes then.
    pub seen_taken: u64,
    /// Bytes of the device that the best one takes there.
    pub best_seen: u64,
    /// Bytes asked for and not given back at most, in either part.
    pub requested: [u64; 2],
}

/// Certainty of an advice, and the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Confidence {
    /// How sure.
    pub level: Level,
    /// The data that was held out.
    pub parts: Parts,
    /// What came of it.
    pub checks: Vec<Check>,
}

impl Check {
    /// True if both parts choose the same settings.
    pub fn is_same(&self) -> bool {
        self.chosen == self.best
    }

    /// Difference of the peak from the predicted one, percent.
    pub fn difference(&self) -> f64 {
        100.0 * self.seen.abs_diff(self.predicted) as f64 / self.predicted.max(1) as f64
    }

    /// Memory that the chosen settings take beyond the best, percent.
    pub fn regret(&self) -> f64 {
        100.0 * self.seen_taken.saturating_sub(self.best_seen) as f64 / self.best_seen.max(1) as f64
    }

    /// Difference of the requested memory between the parts, percent.
    pub fn change(&self) -> f64 {
        let [by, on] = self.requested;
        100.0 * on.abs_diff(by) as f64 / by.max(1) as f64
    }

    fn level(&self) -> Level {
        let [by, on] = self.requested;
        let scaled = self.predicted as f64 * (on as f64 / by.max(1) as f64);
        let unexplained = 100.0 * (self.seen as f64 / scaled.max(1.0) - 1.0).abs();
        if self.regret() <= SURE.0 && self.difference() <= SURE.1 {
            Level::Sure
        } else if self.regret() <= FAIRLY.0 && self.change() <= FAIRLY.1 && unexplained <= FAIRLY.2
        {
            Level::FairlySure
        } else {
            Level::Guess
        }
    }
}

impl Confidence {
    /// Lowers the level to `level` if it is higher.
    pub(super) fn at_most(&mut self, level: Level) {
        self.level = self.level.min(level);
    }

    fn of(parts: Parts, checks: Vec<Check>) -> Confidence {
        Confidence {
            level: checks.iter().map(Check::level).min().unwrap_or_default(),
            parts,
            checks,
        }
    }
}

/// Costs on each part of the candidates that can be chosen.
struct Contest<'a> {
    candidates: Vec<&'a Candidate>,
    /// Sums by candidate, then by part.
    costs: Vec<Vec<Cost>>,
    /// True if no candidate is within the allowance, so that the least time decides.
    by_time: bool,
}

impl Contest<'_> {
    /// Chooses on the part `by` and compares the result on the part `on`.
    fn check(
        &self,
        by: &dyn Fn(&[Cost]) -> Option<Cost>,
        on: &dyn Fn(&[Cost]) -> Option<Cost>,
    ) -> Option<Check> {
        let of = |part: &dyn Fn(&[Cost]) -> Option<Cost>| -> Option<Vec<Cost>> {
            self.costs.iter().map(|costs| part(costs)).collect()
        };
        let (by, on) = (of(by)?, of(on)?);
        let allowance = if self.by_time { Some(0) } else { None };
        let (chosen, best) = (choose(&by, allowance)?, choose(&on, allowance)?);
        let name = |at: usize| self.candidates.get(at).map(|one| one.to_string());
        Some(Check {
            chosen: name(chosen)?,
            best: name(best)?,
            predicted: by.get(chosen)?.peak_reserved,
            seen: on.get(chosen)?.peak_reserved,
            seen_taken: on.get(chosen)?.peak_taken,
            best_seen: on.get(best)?.peak_taken,
            requested: [
                by.get(chosen)?.peak_requested,
                on.get(chosen)?.peak_requested,
            ],
        })
    }
}

/// Repeats the choice on parts of the data and tries it on the others. The parts are recordings if
/// there are several, else halves of the iterations. The sums over all parts decide which
/// candidates are within the allowance.
pub(super) fn confidence(
    recorded: &[Recorded],
    tried: &[Tried],
    allowance: Option<u64>,
    device: &ReplayDevice,
    replays: &dyn Fn(&[Job]) -> Vec<Option<Cost>>,
) -> Confidence {
    let fitting: Vec<&Tried> = tried.iter().filter(|one| one.sum.fits()).collect();
    let within = |one: &&&Tried| allowance.is_none_or(|most| one.sum.steady_ns <= most);
    let by_time = !fitting.iter().any(|one| within(&one));
    let eligible: Vec<&Tried> = fitting
        .iter()
        .filter(|one| by_time || within(one))
        .copied()
        .collect();
    let candidates: Vec<&Candidate> = eligible.iter().map(|one| &one.candidate).collect();
    let with_requests = recorded
        .iter()
        .filter(|one| !one.devices.is_empty())
        .count();
    if with_requests > 1 {
        let costs = eligible
            .iter()
            .map(|one| of_recordings(recorded, &one.costs));
        let contest = Contest {
            candidates,
            costs: costs.collect(),
            by_time,
        };
        let checks = (0..with_requests).filter_map(|apart| {
            let others = |sums: &[Cost]| {
                let others = sums.iter().enumerate().filter(|(at, _)| *at != apart);
                let others: Vec<Cost> = others.map(|(_, sum)| *sum).collect();
                Some(Cost::of(&others))
            };
            contest.check(&others, &|sums| sums.get(apart).copied())
        });
        return Confidence::of(Parts::Recordings, checks.collect());
    }
    let Some((first, second)) = recorded.iter().find_map(halves) else {
        return Confidence::default();
    };
    let halves = [first, second];
    let jobs: Vec<Job> = candidates
        .iter()
        .flat_map(|candidate| {
            halves.iter().flatten().map(|requests| {
                candidate.job(
                    device,
                    Run {
                        requests,
                        started: 0,
                    },
                )
            })
        })
        .collect();
    let Some(costs) = replays(&jobs).into_iter().collect::<Option<Vec<Cost>>>() else {
        return Confidence {
            parts: Parts::NoTime,
            ..Confidence::default()
        };
    };
    let [first, second] = &halves;
    let costs = costs.chunks(first.len() + second.len()).map(|costs| {
        let (first, second) = costs.split_at(first.len().min(costs.len()));
        vec![Cost::of(first), Cost::of(second)]
    });
    let contest = Contest {
        candidates,
        costs: costs.collect(),
        by_time,
    };
    let check = contest.check(&|sums| sums.first().copied(), &|sums| sums.last().copied());
    Confidence::of(Parts::Halves, check.into_iter().collect())
}

/// Sums the costs of runs and devices by recording. Recordings without requests are left out.
fn of_recordings(recorded: &[Recorded], costs: &[Cost]) -> Vec<Cost> {
    let mut rest = costs;
    let of = recorded.iter().map(|one| {
        let (these, others) = rest.split_at(one.devices.len().min(rest.len()));
        rest = others;
        these
    });
    of.filter(|costs| !costs.is_empty()).map(Cost::of).collect()
}

/// Requests of each device in the first half of the iterations after the warm-up, and in the second
/// half.
fn halves(recorded: &Recorded) -> Option<(Vec<Requests>, Vec<Requests>)> {
    let warm = recorded.warm_up();
    let half = recorded.steady_iterations() / 2;
    if half < LEAST {
        return None;
    }
    let start = |iteration: usize| recorded.starts.get(iteration).copied();
    let (begin, middle, end) = (start(warm)?, start(warm + half)?, start(warm + 2 * half)?);
    let part = |from: u64, to: u64| {
        let runs = recorded.devices.values();
        let parts = runs.map(|run| run.slice(run.at(from), run.at(to)));
        parts.collect::<Vec<_>>()
    };
    Some((part(begin, middle), part(middle, end)))
}

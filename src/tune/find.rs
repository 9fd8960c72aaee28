//! Tries all candidates on all runs, chooses one, and puts it to the test.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use super::advice::{self, Advice};
use super::candidate::{Candidate, Families, candidates};
use super::choice::{self, choose, front};
use super::confidence::{self, Confidence, Level};
use super::cost::{Cost, Sum};
use super::fit;
use super::recorded::{Recorded, Tried, peak};
use super::search::{self, Job, Progress, Run};
use crate::replay::{self, Policy, ReplayDevice};
use gpushim_alloc::Reuse;

/// The options of a search.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most that driver calls may take, percent of the duration of the runs.
    pub within: f64,
    /// The most memory that can be held, bytes.
    pub limit: Option<u64>,
    /// How long to look for an answer.
    pub budget: Duration,
    /// Replays at a time, at least one.
    pub threads: usize,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// All that were tried, in the order in which they were.
    pub tried: Vec<Tried>,
    /// Those that need not be: less memory costs time, less time costs memory. By memory, the least first.
    pub front: Vec<usize>,
    /// The advice; `None` if nothing fits, or nothing was tried.
    pub advice: Option<Advice>,
    /// The tried candidate that comes closest where nothing fits, and the limit that it needs.
    pub closest: Option<(usize, Option<u64>)>,
    /// The least limits of what the program has now, where they were found: policy, bytes.
    pub limits_now: Vec<(&'static str, u64)>,
    /// How sure the advice is.
    pub confidence: Confidence,
    /// Candidates for which there was no time.
    pub not_tried: usize,
    /// Ns that all runs took together without their start; 0 if they have no times.
    pub duration: u64,
    /// Iterations of all runs without those of their start.
    pub iterations: usize,
    /// Which calls the runs allocate by.
    pub families: Families,
}

/// Searches for the best settings. Calls `progress` after each replay.
pub fn tune(
    recorded: &[Recorded],
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Tuned {
    let begin = Instant::now();
    let until = |part: f64| begin + options.budget.mul_f64(part);
    let replays = |jobs: &[Job], part: f64, what: &'static str| {
        search::replays(jobs, options.threads, until(part), what, progress)
    };
    let runs: Vec<Run> = recorded.iter().flat_map(Recorded::runs).collect();
    let families = Families::of(&runs);
    let device = device(recorded, options);

    // Most of the time is for the search; what tells of its result has the rest.
    let all = if runs.is_empty() {
        Vec::new()
    } else {
        candidates(families, peak(&runs))
    };
    let jobs: Vec<Job> = all
        .iter()
        .flat_map(|candidate| runs.iter().map(|run| candidate.job(&device, *run)))
        .collect();
    let tried = gather(&all, &replays(&jobs, 0.6, "replays"), runs.len());

    let duration = recorded.iter().map(Recorded::steady).sum();
    let allowance = choice::allowance(duration, options.within);
    let sums: Vec<Sum> = tried.iter().map(|one| one.sum).collect();
    let chosen = choose(&sums, allowance);
    let iterations = recorded.iter().map(Recorded::steady_iterations).sum();
    let mut tuned = Tuned {
        front: front(&sums),
        advice: None,
        closest: None,
        limits_now: Vec::new(),
        confidence: Confidence::default(),
        not_tried: all.len() - tried.len(),
        duration,
        iterations,
        families,
        tried,
    };
    let limits = fit::Limits {
        runs: &runs,
        device,
        replays: &|jobs| replays(jobs, 1.0, "limits"),
    };
    let Some(chosen) = chosen else {
        let refused = tuned.tried.iter().enumerate();
        let closest = refused.min_by_key(|(_, one)| (one.sum.out_of_memory, one.sum.peak_taken));
        tuned.closest = closest.map(|(at, one)| (at, limits.least(&one.candidate, one.sum)));
        return tuned;
    };
    let Some(best) = tuned.tried.get(chosen) else {
        return tuned;
    };
    let mut baseline = advice::baseline(recorded, families, &tuned.tried, &|jobs| {
        replays(jobs, 0.7, "baseline")
    });
    // A part is not the whole: what does not fit into a limit there may fit here.
    let unlimited = ReplayDevice {
        limit: None,
        ..device
    };
    tuned.confidence =
        confidence::confidence(recorded, &tuned.tried, allowance, &unlimited, &|jobs| {
            replays(jobs, 0.85, "parts")
        });
    // What a part of a run needs says nothing of a peak that lies before it.
    let is_peak_unsure = recorded.iter().any(Recorded::is_peak_unsure);
    let mut smallest_limit = None;
    let mut than = baseline;
    if is_peak_unsure {
        baseline.peak_reserved = None;
        than.peak_reserved = advice::own_peak(recorded, families, &tuned.tried);
        tuned.confidence.at_most(Level::Guess);
    } else {
        smallest_limit = limits.least(&best.candidate, best.sum);
        tuned.limits_now = limits_now(recorded, families, &tuned.tried, &limits);
    }
    // Halves of what may be no iterations, and a beginning that is lost, leave a doubt.
    if recorded.iter().any(|one| one.is_wrapped || !one.is_sure) {
        tuned.confidence.at_most(Level::FairlySure);
    }
    tuned.advice = Some(Advice {
        chosen,
        environment: advice::environment(&best.candidate, recorded),
        is_worth_it: advice::is_worth_it(best.sum, &than, options.limit, duration),
        baseline,
        smallest_limit,
        within: allowance.is_none_or(|allowance| best.sum.steady_ns <= allowance),
    });
    tuned
}

/// The least limits of the settings that the recordings had, or else of PyTorch's allocator.
fn limits_now(
    recorded: &[Recorded],
    families: Families,
    tried: &[Tried],
    limits: &fit::Limits,
) -> Vec<(&'static str, u64)> {
    let own = advice::own(recorded, families);
    let now = match own.and_then(|own| tried.iter().find(|one| one.candidate == own)) {
        Some(own) => vec![(
            own.candidate.policy(),
            limits.least(&own.candidate, own.sum),
        )],
        None => [Policy::Torch, Policy::TorchExpandable]
            .map(|policy| (policy.name(), limits.least_of(policy)))
            .to_vec(),
    };
    let found = now.into_iter();
    found
        .filter_map(|(name, limit)| Some((name, limit?)))
        .collect()
}

/// Where all of it is replayed: as it was recorded, but for what is looked for.
fn device(recorded: &[Recorded], options: &Options) -> ReplayDevice {
    let setting = |name| recorded.iter().find_map(|one| one.settings.get(name));
    let default = ReplayDevice::default();
    ReplayDevice {
        limit: options.limit,
        decay: setting("GPUSHIM_DECAY")
            .and_then(|text| replay::decay(text))
            .unwrap_or(default.decay),
        reuse: setting("GPUSHIM_REUSE")
            .and_then(|text| Reuse::parse(text))
            .unwrap_or(default.reuse),
        ..default
    }
}

/// The candidates of which all runs were replayed.
fn gather(all: &[Candidate], costs: &[Option<Cost>], runs: usize) -> Vec<Tried> {
    let of_each = all.iter().zip(costs.chunks(runs.max(1)));
    let tried = of_each.filter_map(|(candidate, costs)| {
        let costs: Vec<Cost> = costs.iter().copied().collect::<Option<_>>()?;
        Some(Tried {
            candidate: *candidate,
            sum: Sum::of(&costs),
            costs,
        })
    });
    tried.collect()
}

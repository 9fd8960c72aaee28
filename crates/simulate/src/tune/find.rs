//! Tries all candidates on all runs, chooses one, and checks the choice.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use super::advice::{self, Advice};
use super::candidate::{Candidate, Families, candidates};
use super::choice::{self, choose, front};
use super::confidence::{self, Confidence, Level};
use super::cost::Cost;
use super::fit;
use super::recorded::{Recorded, Tried, peak};
use super::search::{self, Job, Progress, Run};
use crate::replay::{self, Policy, ReplayDevice};
use gpushim_alloc::Reuse;

/// Options of a search for settings.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most time that driver calls may take, percent of the duration of the runs.
    pub within: f64,
    /// Most memory that can be held, bytes.
    pub limit: Option<u64>,
    /// Time limit of the search.
    pub budget: Duration,
    /// Number of parallel replays, at least one.
    pub threads: usize,
}

/// Results of a search for settings.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// All tried candidates, in the order of the attempts.
    pub tried: Vec<Tried>,
    /// Indices of the candidates on the Pareto front between memory and time, the least memory
    /// first.
    pub front: Vec<usize>,
    /// Recommended settings; `None` if nothing fits, or nothing was tried.
    pub advice: Option<Advice>,
    /// Closest candidate if nothing fits, and the limit for it.
    pub closest: Option<(usize, Option<u64>)>,
    /// Least limits of the current settings, as far as they were found: policy, bytes.
    pub limits_now: Vec<(&'static str, u64)>,
    /// Confidence in the advice.
    pub confidence: Confidence,
    /// Number of candidates for which there was no time.
    pub not_tried: usize,
    /// Time of all runs without their start, ns; 0 if they have no times.
    pub duration: u64,
    /// Number of iterations of all runs without their warm-up.
    pub iterations: usize,
    /// Families of calls by which the runs allocate.
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

    // The search gets most of the time; the checks of its result share the rest.
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
    let sums: Vec<Cost> = tried.iter().map(|one| one.sum).collect();
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
    // A part of a run is replayed without a limit: its live bytes need not fit into the limit of
    // the whole run.
    let unlimited = ReplayDevice {
        limit: None,
        ..device
    };
    tuned.confidence =
        confidence::confidence(recorded, &tuned.tried, allowance, &unlimited, &|jobs| {
            replays(jobs, 0.85, "parts")
        });
    // If the peak of a run may be lost, a limit that is enough for the rest proves nothing.
    let is_peak_unsure = recorded.iter().any(Recorded::is_peak_unsure);
    let mut smallest_limit = None;
    let mut than = baseline;
    if is_peak_unsure {
        baseline.peak_reserved = None;
        let own = advice::tried_own(recorded, families, &tuned.tried);
        than.peak_reserved = own.map(|own| own.sum.peak_reserved);
        tuned.confidence.at_most(Level::Guess);
    } else {
        smallest_limit = limits.least(&best.candidate, best.sum);
        tuned.limits_now = limits_now(recorded, families, &tuned.tried, &limits);
    }
    // Uncertain iterations and a lost beginning reduce the confidence.
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

/// Finds the least limits of the recordings' settings, or else of PyTorch's allocator.
fn limits_now(
    recorded: &[Recorded],
    families: Families,
    tried: &[Tried],
    limits: &fit::Limits,
) -> Vec<(&'static str, u64)> {
    let now = match advice::tried_own(recorded, families, tried) {
        Some(own) => vec![(
            own.candidate.policy.name(),
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

/// Returns the device of all replays, with the recorded values of `GPUSHIM_DECAY` and
/// `GPUSHIM_REUSE`.
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

/// Collects the candidates whose runs were all replayed.
fn gather(all: &[Candidate], costs: &[Option<Cost>], runs: usize) -> Vec<Tried> {
    let of_each = all.iter().zip(costs.chunks(runs.max(1)));
    let tried = of_each.filter_map(|(candidate, costs)| {
        let costs: Vec<Cost> = costs.iter().copied().collect::<Option<_>>()?;
        Some(Tried {
            candidate: *candidate,
            sum: Cost::of(&costs),
            costs,
        })
    });
    tried.collect()
}

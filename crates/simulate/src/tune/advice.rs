//! Chooses the variables to recommend, and the settings to compare them with.

use super::candidate::{Candidate, Families};
use super::cost::Cost;
use super::recorded::{Recorded, Tried};
use super::search::{Job, Run};
use crate::replay::{Policy, ReplayDevice};
use gpushim_analysis::requests::Requests;
use gpushim_config::VARIABLES;

/// Settings that are recommended for the next run.
#[derive(Clone, Debug)]
pub struct Advice {
    /// Index of the chosen candidate in `Tuned::tried`.
    pub chosen: usize,
    /// Variables to set and variables to unset.
    pub environment: Environment,
    /// Figures that the recommended settings are compared with.
    pub baseline: Baseline,
    /// Smallest `GPUSHIM_LIMIT` with which the settings would have fitted, bytes.
    pub smallest_limit: Option<u64>,
    /// True if the driver calls after the start take no longer than the allowance.
    pub within: bool,
    /// True if the settings are enough better than the baseline to justify a change.
    pub is_worth_it: bool,
}

/// Least saving that justifies a change: percent of the memory, or of the run's time.
pub const WORTH: f64 = 3.0;

/// True if the best sum justifies a change from the baseline. A baseline with an unknown peak, or
/// with one above the limit, always justifies it. A sum that holds more than the baseline never
/// does otherwise.
pub(super) fn is_worth_it(best: Cost, than: &Baseline, limit: Option<u64>, duration: u64) -> bool {
    let Some(held) = than.peak_reserved else {
        return true;
    };
    if limit.is_some_and(|limit| held > limit) {
        return true;
    }
    let share = |less: u64, of: u64| 100.0 * less as f64 / of.max(1) as f64;
    let Some(less) = held.checked_sub(best.peak_reserved) else {
        return false;
    };
    let saved = than.driver_ns.unwrap_or(0).saturating_sub(best.driver_ns);
    share(less, held) >= WORTH || duration > 0 && share(saved, duration) >= WORTH
}

/// Changes of variables for the next run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Variables to set, with their values.
    pub set: Vec<(&'static str, String)>,
    /// Variables of the recording that have to be unset.
    pub unset: Vec<&'static str>,
}

/// Source of the memory of a [`Baseline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Than {
    /// The memory that was held at most according to the recordings.
    Recorded,
    /// A replay with PyTorch's allocator, for recordings without that figure.
    Torch,
}

/// Memory and time without the advice.
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    /// Source of the memory figure.
    pub than: Than,
    /// Most bytes that were held in one run and on one device; `None` if unknown.
    pub peak_reserved: Option<u64>,
    /// True if `driver_ns` is from a replay with the settings of the recording. False if it is from
    /// a replay with PyTorch's allocator.
    pub own_time: bool,
    /// Time of the driver calls, ns.
    pub driver_ns: Option<u64>,
}

/// Variables that concern the program, not the memory: the values of the recording stay.
const KEPT: [&str; 2] = ["GPUSHIM_TAKEOVER", "GPUSHIM_REUSE"];
/// Divisor of the held peak. A recording is no baseline if more than `1/CACHED_BEFORE` of its peak
/// was cached before it began.
const CACHED_BEFORE: u64 = 10;
/// Variables that the advice chooses.
const CHOSEN: [&str; 3] = ["GPUSHIM_POLICY", "GPUSHIM_PAGE", "GPUSHIM_CACHE_MAX"];

/// Returns the changes of variables that put a candidate in force in a run like the recorded ones.
pub(super) fn environment(candidate: &Candidate, recorded: &[Recorded]) -> Environment {
    let had = |name: &'static str| {
        let settings = recorded.iter().filter_map(|one| one.settings.get(name));
        let default = VARIABLES.iter().find(|variable| variable.name == name);
        let default = default.map_or("", |variable| variable.default);
        settings.into_iter().find(|value| *value != default)
    };
    let mut set: Vec<(&'static str, String)> = KEPT
        .into_iter()
        .filter_map(|name| Some((name, had(name)?.clone())))
        .collect();
    let is_set = |set: &[(&str, String)], name| set.iter().any(|(other, _)| *other == name);
    if recorded.iter().any(|one| one.tensors) && !is_set(&set, "GPUSHIM_TAKEOVER") {
        // A framework with its own cache makes few requests.
        set.push(("GPUSHIM_TAKEOVER", "torch".to_string()));
    }
    set.extend(candidate.variables());
    let unset = CHOSEN
        .into_iter()
        .filter(|name| had(name).is_some() && !is_set(&set, name));
    Environment {
        unset: unset.collect(),
        set,
    }
}

impl Environment {
    /// Formats the variables as a prefix of a command line.
    pub fn line(&self) -> String {
        let words = self
            .set
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Finds the baseline: the recorded memory if it is known, else a replay with PyTorch's allocator.
pub(super) fn baseline(
    recorded: &[Recorded],
    families: Families,
    tried: &[Tried],
    replays: &dyn Fn(&[Job]) -> Vec<Option<Cost>>,
) -> Baseline {
    let runs = || recorded.iter().flat_map(|one| one.devices.values());
    let held: Option<Vec<u64>> = runs().map(Requests::recorded_reserved).collect();
    let held = held.and_then(|held| held.into_iter().max());
    // No replay serves the requests behind memory that was cached before the recording began.
    let cached = runs().map(Requests::cached_before).max().unwrap_or(0);
    let held = held.filter(|held| cached <= held / CACHED_BEFORE);
    let own = tried_own(recorded, families, tried);
    let torch = if held.is_some() && own.is_some() {
        None
    } else {
        torch(&runs().collect::<Vec<_>>(), replays)
    };
    Baseline {
        than: if held.is_some() {
            Than::Recorded
        } else {
            Than::Torch
        },
        peak_reserved: held.or(torch.map(|sum| sum.peak_reserved)),
        own_time: own.is_some(),
        driver_ns: own.map(|one| one.sum).or(torch).map(|sum| sum.driver_ns),
    }
}

/// Returns the settings of the recordings if all have the same, and if these served the replayed
/// requests.
fn own(recorded: &[Recorded], families: Families) -> Option<Candidate> {
    let of = |one: &Recorded| {
        let setting = |name: &str| one.settings.get(name).cloned();
        (!one.tensors)
            .then(|| Candidate::recorded(setting, families))
            .flatten()
    };
    let first = of(recorded.first()?)?;
    let is_same = recorded.iter().all(|one| of(one) == Some(first));
    is_same.then_some(first)
}

/// Returns the replays with the settings of the recordings; `None` if they are unknown or were not
/// tried.
pub(super) fn tried_own<'a>(
    recorded: &[Recorded],
    families: Families,
    tried: &'a [Tried],
) -> Option<&'a Tried> {
    let own = own(recorded, families)?;
    tried.iter().find(|one| one.candidate == own)
}

/// Replays all requests with PyTorch's allocator from an empty state. The blocks that were live at
/// the beginning of a snapshot are replayed as requests, too.
fn torch(runs: &[&Requests], replays: &dyn Fn(&[Job]) -> Vec<Option<Cost>>) -> Option<Cost> {
    let whole: Vec<Requests> = runs.iter().map(|run| run.slice(0, run.len())).collect();
    let jobs: Vec<Job> = whole
        .iter()
        .map(|requests| Job {
            policy: Policy::Torch,
            device: ReplayDevice::default(),
            run: Run {
                requests,
                started: 0,
            },
        })
        .collect();
    let costs: Vec<Cost> = replays(&jobs).into_iter().collect::<Option<_>>()?;
    Some(Cost::of(&costs))
}

#[cfg(test)]
mod tests;

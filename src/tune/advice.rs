//! The recommended settings, and those that they are compared with.

use super::candidate::{Candidate, Families};
use super::cost::{Cost, Sum};
use super::recorded::{Recorded, Tried};
use super::search::{Job, Run};
use crate::replay::{Policy, ReplayDevice};
use crate::requests::Requests;
use gpushim_config::VARIABLES;

/// The recommended settings.
#[derive(Clone, Debug)]
pub struct Advice {
    /// Its place among those that were tried.
    pub chosen: usize,
    /// What to set, and what not to.
    pub environment: Environment,
    /// What it is compared with.
    pub baseline: Baseline,
    /// The smallest `GPUSHIM_LIMIT` with which it would have fitted, bytes.
    pub smallest_limit: Option<u64>,
    /// Whether its driver calls take no longer than was allowed.
    pub within: bool,
    /// Whether it is better by so much than what there was that a change is worth it.
    pub is_worth_it: bool,
}

/// Less memory than this, percent, is not worth a change; nor is less time, percent of the run.
pub(super) const WORTH: f64 = 3.0;

/// Whether a candidate is so much better than what there was that a change is worth it.
pub(super) fn is_worth_it(best: Sum, than: &Baseline, limit: Option<u64>, duration: u64) -> bool {
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

/// Variables for the next run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Those to set, with their values.
    pub set: Vec<(&'static str, String)>,
    /// Those that the recording had, and that are not to be set.
    pub unset: Vec<&'static str>,
}

/// The settings to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Than {
    /// What the recordings say was held.
    Recorded,
    /// A replay with PyTorch's allocator: the recordings do not say.
    Torch,
}

/// What there would be without the advice.
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    /// Where the memory is known from.
    pub than: Than,
    /// Bytes held at most, of the run and device that held the most; `None` if that could not be found out.
    pub peak_reserved: Option<u64>,
    /// Whether its time is that of the settings under which it was recorded; else that of PyTorch's allocator.
    pub own_time: bool,
    /// Ns of driver calls.
    pub driver_ns: Option<u64>,
}

/// Variables that are the program's affair, not the memory's: those of the recording stay.
const KEPT: [&str; 2] = ["GPUSHIM_TAKEOVER", "GPUSHIM_REUSE"];
/// A recording is no baseline if more than this part of what it held at most was cached before it began.
const CACHED_BEFORE: u64 = 10;
/// Variables that are chosen here.
const CHOSEN: [&str; 3] = ["GPUSHIM_POLICY", "GPUSHIM_PAGE", "GPUSHIM_CACHE_MAX"];

/// What to set so that a candidate is in force in a run like those recorded.
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
    /// As one writes it before a command.
    pub fn line(&self) -> String {
        let words = self
            .set
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// What there was, or would be with PyTorch's allocator.
pub(super) fn baseline(
    recorded: &[Recorded],
    families: Families,
    tried: &[Tried],
    replays: &dyn Fn(&[Job]) -> Vec<Option<Cost>>,
) -> Baseline {
    let runs = || recorded.iter().flat_map(|one| one.devices.values());
    let held: Option<Vec<u64>> = runs().map(Requests::recorded_reserved).collect();
    let held = held.and_then(|held| held.into_iter().max());
    // What was cached before the recording began was for requests that no replay serves.
    let cached = runs().map(Requests::cached_before).max().unwrap_or(0);
    let held = held.filter(|held| cached <= held / CACHED_BEFORE);
    let own = own(recorded, families).and_then(|own| tried.iter().find(|one| one.candidate == own));
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

/// The settings of the recordings, where they are the same for all and served what is replayed.
pub(super) fn own(recorded: &[Recorded], families: Families) -> Option<Candidate> {
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

/// What the settings of the recordings hold at most in a replay, bytes, if they are known and were tried.
pub(super) fn own_peak(recorded: &[Recorded], families: Families, tried: &[Tried]) -> Option<u64> {
    let own = own(recorded, families)?;
    let one = tried.iter().find(|one| one.candidate == own)?;
    Some(one.sum.peak_reserved)
}

/// PyTorch's allocator, from nothing: what a snapshot says was there at its beginning had its price, too.
fn torch(runs: &[&Requests], replays: &dyn Fn(&[Job]) -> Vec<Option<Cost>>) -> Option<Sum> {
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
    Some(Sum::of(&costs))
}

#[cfg(test)]
mod tests;

//! Figures over all ranks of a job: spreads, functions at the peaks, phases.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::summary::RankSummary;
use crate::top::State;

/// Most functions in the list of a job.
const FUNCTIONS: usize = 10;

/// Sums over all ranks, and how their figures are distributed.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Totals {
    /// Number of hosts on which ranks ran.
    pub hosts: usize,
    /// Ranks whose process still runs.
    pub running: usize,
    /// Ranks that noted their end.
    pub ended: usize,
    /// Ranks whose process is gone without a note.
    pub died: usize,
    /// Most live bytes of a rank.
    pub peak: Spread,
    /// Most bytes that a rank held from the driver.
    pub reserved: Spread,
    /// Number of iterations of a rank.
    pub iterations: Spread,
    /// Median time of an iteration, ns.
    pub iteration_ns: Spread,
    /// Events that the traces of all ranks lost.
    pub events_lost: u64,
    /// Requests that ran out of memory.
    pub out_of_memory: u64,
}

/// A quantity over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spread {
    /// Sum over the ranks that have this figure.
    pub sum: u64,
    /// Lowest value of any rank.
    pub least: u64,
    /// Value below which a tenth of the ranks is.
    pub p10: u64,
    /// Value of the rank in the middle.
    pub median: u64,
    /// Value above which a tenth of the ranks is.
    pub p90: u64,
    /// Highest value of any rank.
    pub most: u64,
}

impl Spread {
    /// Computes the figures of some values; all are 0 if there are no values.
    pub fn of(values: impl Iterator<Item = u64>) -> Spread {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        let last = values.len().saturating_sub(1);
        let at = |tenths: usize| values.get(last * tenths / 10).copied().unwrap_or(0);
        Spread {
            sum: values
                .iter()
                .fold(0, |sum, value| sum.saturating_add(*value)),
            least: at(0),
            p10: at(1),
            median: at(5),
            p90: at(9),
            most: at(10),
        }
    }
}

/// Memory of a function at the peaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OfFunction {
    /// The function with its place, empty for blocks without a stack.
    pub function: String,
    /// Bytes, of all ranks together.
    pub bytes: u64,
    /// Ranks among whose first functions it is.
    pub ranks: usize,
}

/// Phase with the same name on several ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OfPhase {
    /// Name without numbers, as the ranks announced it.
    pub name: String,
    /// Most bytes that were live in it.
    pub peak: Spread,
    /// Rank with the highest peak in this phase.
    pub highest: String,
}

pub(super) fn totals(ranks: &[&RankSummary]) -> Totals {
    let hosts: BTreeSet<&str> = ranks
        .iter()
        .map(|rank| rank.process.host.as_str())
        .collect();
    let of = |state| ranks.iter().filter(|rank| rank.end.state == state).count();
    let iterations = || ranks.iter().filter_map(|rank| rank.iterations.as_ref());
    let sum = |of: fn(&RankSummary) -> u64| {
        let all = ranks.iter().map(|rank| of(rank));
        all.fold(0_u64, u64::saturating_add)
    };
    Totals {
        hosts: hosts.len(),
        running: of(State::Running),
        ended: of(State::Ended),
        died: of(State::Died),
        peak: Spread::of(ranks.iter().map(|rank| rank.peak())),
        reserved: Spread::of(
            (ranks.iter()).map(|rank| rank.main_device().map_or(0, |of| of.reserved_peak)),
        ),
        iterations: Spread::of(iterations().map(|of| of.count)),
        iteration_ns: Spread::of(iterations().map(|of| of.median_ns)),
        events_lost: sum(|rank| rank.events.lost),
        out_of_memory: sum(|rank| rank.out_of_memory),
    }
}

pub(super) fn functions(ranks: &[&RankSummary]) -> Vec<OfFunction> {
    let mut all: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    for rank in ranks {
        for holder in rank.main_device().map_or(&[][..], |device| &device.holders) {
            let of = all.entry(&holder.site.function).or_default();
            of.0 = of.0.saturating_add(holder.bytes);
            of.1 += 1;
        }
    }
    let of = |(function, (bytes, ranks)): (&str, (u64, usize))| OfFunction {
        function: function.to_string(),
        bytes,
        ranks,
    };
    let mut all: Vec<OfFunction> = all.into_iter().map(of).collect();
    all.sort_by_key(|of| std::cmp::Reverse(of.bytes));
    all.truncate(FUNCTIONS);
    all
}

pub(super) fn phases(ranks: &[&RankSummary]) -> Vec<OfPhase> {
    let mut names: Vec<&str> = Vec::new();
    let mut peaks: BTreeMap<&str, Vec<(u64, usize)>> = BTreeMap::new();
    for (index, rank) in ranks.iter().enumerate() {
        for phase in &rank.phases {
            if !peaks.contains_key(phase.name.as_str()) {
                names.push(&phase.name);
            }
            let of = peaks.entry(&phase.name).or_default();
            of.push((phase.peak, index));
        }
    }
    let of = |name: &str| {
        let peaks = peaks.get(name).map_or(&[][..], Vec::as_slice);
        // The first rank of several with the same peak.
        let highest = peaks.iter().rev().max_by_key(|(peak, _)| *peak);
        let highest = highest.and_then(|(_, index)| ranks.get(*index));
        OfPhase {
            name: name.to_string(),
            peak: Spread::of(peaks.iter().map(|(peak, _)| *peak)),
            highest: highest
                .and_then(|rank| rank.process.rank)
                .map_or(String::new(), |rank| rank.to_string()),
        }
    };
    names.into_iter().map(of).collect()
}

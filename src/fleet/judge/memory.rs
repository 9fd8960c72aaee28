//! Ranks that leak, that run another model, and that hold more or less than the others.

use std::collections::BTreeMap;

use crate::fleet::outlier::{Kind, Outlier};
use crate::fleet::roles::{alone, median};
use crate::fleet::summary::{Holder, RankSummary, Site};
use crate::output::escape::shown;
use crate::output::units::{bytes, percent};

/// Peaks and levels that differ by less than this many bytes are alike: contexts and caches of libraries differ by as much.
const LEAST: f64 = (64_u64 << 20) as f64;
/// A peak or level differs by at least this part.
const APART: f64 = 0.1;
/// Allocations of an iteration differ by at least this part.
const CALLS: f64 = 0.1;
/// Fewer iterations say nothing of a model: what is allocated before the first one weighs too much.
const FEWEST: u64 = 5;
/// A function explains a difference if it has this part of it.
const MOST: f64 = 0.6;

/// Ranks whose iterations certainly leave memory behind.
pub fn leaks(ranks: &[&RankSummary]) -> Vec<Outlier> {
    let mut found = Vec::new();
    for (index, rank) in ranks.iter().enumerate() {
        let mut its = rank.findings.iter();
        let leak = |one: &&crate::fleet::summary::Finding| {
            one.sure && ["growth", "leaks"].contains(&one.kind.as_str())
        };
        let Some(finding) = its.find(leak) else {
            continue;
        };
        let keeper = rank.iterations.as_ref().and_then(|of| of.keepers.first());
        let site = finding.site.clone();
        let site = site.or_else(|| keeper.map(|keeper| keeper.site.clone()));
        found.push(Outlier {
            bytes: finding.bytes,
            site,
            ..Outlier::of(
                Kind::Leak,
                index,
                finding.text.clone(),
                (true, "its iterations leave blocks behind, to the end"),
            )
        });
    }
    found
}

/// Ranks that allocate another number of times in an iteration, or hold more or less between iterations in all of their
/// functions: not those whose difference is known.
pub fn other_models(ranks: &[&RankSummary], explained: &[usize]) -> Vec<Outlier> {
    let of = |index: usize| {
        let rank = ranks.get(index)?;
        let iterations = rank.iterations.as_ref()?;
        let is_fit = iterations.sure && iterations.count >= FEWEST && !explained.contains(&index);
        is_fit.then(|| {
            let calls = rank.allocations as f64 / iterations.count as f64;
            (index, calls, iterations.level as f64)
        })
    };
    let known: Vec<(usize, f64, f64)> = (0..ranks.len()).filter_map(of).collect();
    let by_calls = alone(&known.iter().map(|one| one.1).collect::<Vec<_>>(), 1.0);
    let by_level = alone(&known.iter().map(|one| one.2).collect::<Vec<_>>(), LEAST);
    let calls_of = |at: usize| {
        by_calls
            .iter()
            .find(|one| one.index == at && one.share() >= CALLS)
    };
    let level_of = |at: usize| {
        by_level
            .iter()
            .find(|one| one.index == at && one.share() >= APART)
    };
    let mut found = Vec::new();
    for (at, (index, ..)) in known.iter().enumerate() {
        let (calls, level) = (calls_of(at), level_of(at));
        if level.is_none() {
            continue;
        }
        let excess = Excess::of(ranks, *index);
        // One function that holds more is no other model.
        let is_spread = excess
            .as_ref()
            .is_none_or(|excess| excess.first_share < MOST);
        let text = match (calls, level) {
            (Some(calls), Some(level)) => format!(
                "An iteration allocates {:.0} times, elsewhere {:.0} times, and {} are live between iterations, elsewhere \
                 {}.",
                calls.value,
                calls.usual,
                bytes(level.value as u64),
                bytes(level.usual as u64)
            ),
            (None, Some(level)) if is_spread && excess.is_some() => format!(
                "Between iterations {} are live, elsewhere {}, of the same functions.",
                bytes(level.value as u64),
                bytes(level.usual as u64)
            ),
            _ => continue,
        };
        let (value, usual) = level.map_or((0.0, 0.0), |level| (level.value, level.usual));
        found.push(Outlier {
            bytes: (value - usual).abs() as u64,
            site: excess.map(|excess| excess.site),
            ..Outlier::of(
                Kind::OtherModel,
                *index,
                text,
                (
                    calls.is_some(),
                    "what an iteration allocates and what stays between iterations are compared",
                ),
            )
        });
    }
    found
}

/// Ranks that peak higher or lower than the others, unless that is explained.
pub fn imbalance(ranks: &[&RankSummary], explained: &[usize]) -> Vec<Outlier> {
    let known: Vec<usize> = (0..ranks.len())
        .filter(|index| !explained.contains(index))
        .collect();
    let peak = |index: &usize| ranks.get(*index).map_or(0.0, |rank| rank.peak() as f64);
    let peaks: Vec<f64> = known.iter().map(peak).collect();
    let mut found = Vec::new();
    for one in alone(&peaks, LEAST) {
        let apart = (one.value - one.usual).abs();
        if one.share() < APART || apart < LEAST {
            continue;
        }
        let Some(index) = known.get(one.index).copied() else {
            continue;
        };
        let more = one.value > one.usual;
        let excess = Excess::of(ranks, index);
        let mut text = format!(
            "Its peak is {}, {} {} than the usual {}",
            bytes(one.value as u64),
            percent(one.share(), 1.0),
            if more { "more" } else { "less" },
            bytes(one.usual as u64)
        );
        if let Some(excess) = &excess {
            text.push_str(&format!(
                "; `{}` holds {}, usually {}",
                shown(&excess.site.short),
                bytes(excess.its),
                bytes(excess.usual)
            ));
        }
        text.push('.');
        found.push(Outlier {
            bytes: apart as u64,
            site: excess.map(|excess| excess.site),
            ..Outlier::of(
                Kind::Imbalance,
                index,
                text,
                (
                    false,
                    "the peaks differ, which may be by design: a rank that evaluates or saves, an expert that gets more",
                ),
            )
        });
    }
    found
}

/// By which function the peak of a rank differs most from that of the others.
struct Excess {
    site: Site,
    its: u64,
    usual: u64,
    /// Its part of all differences of this direction, 0 to 1.
    first_share: f64,
}

impl Excess {
    /// Compares a rank with the middle of the others; `None` where no functions are known.
    fn of(ranks: &[&RankSummary], index: usize) -> Option<Excess> {
        let rank = ranks.get(index)?;
        let its = by_function(rank);
        let others = ranks.iter().enumerate().filter(|(at, _)| *at != index);
        let others: Vec<_> = others.map(|(_, other)| by_function(other)).collect();
        let peaks = ranks.iter().map(|rank| rank.peak() as f64).collect();
        let is_more = rank.peak() as f64 >= median(peaks);
        let names = its
            .keys()
            .chain(others.iter().flat_map(|other| other.keys()));
        let mut names: Vec<&str> = names.copied().collect();
        names.sort_unstable();
        names.dedup();
        let mut apart: Vec<(f64, &str, u64, u64)> = Vec::new();
        for name in names {
            let of = |all: &BTreeMap<&str, &Holder>| all.get(name).map_or(0, |one| one.bytes);
            let here = of(&its);
            let usual = median(others.iter().map(|other| of(other) as f64).collect());
            let by = here as f64 - usual;
            apart.push((if is_more { by } else { -by }, name, here, usual as u64));
        }
        let sum: f64 = apart.iter().map(|(by, ..)| by.max(0.0)).sum();
        let (by, name, here, usual) = apart
            .into_iter()
            .filter(|(by, name, ..)| *by > 0.0 && !name.is_empty())
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let all = std::iter::once(&its).chain(&others);
        let site = all.filter_map(|one| one.get(name)).next()?.site.clone();
        Some(Excess {
            site,
            its: here,
            usual,
            first_share: by / sum.max(1.0),
        })
    }
}

fn by_function(rank: &RankSummary) -> BTreeMap<&str, &Holder> {
    let holders = rank.main_device().map_or(&[][..], |device| &device.holders);
    let named = holders.iter().map(|one| (one.site.function.as_str(), one));
    named.collect()
}

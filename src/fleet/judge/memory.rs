//! Finds leaks, other models, and ranks with more or less memory than the others.

use std::collections::BTreeMap;

use crate::fleet::outlier::{Kind, Outlier};
use crate::fleet::roles::{Alone, alone, median};
use crate::fleet::summary::{Holder, RankSummary, Site};
use crate::output::answer::layer_name;
use crate::output::escape::shown;
use crate::output::units::{bytes, percent};
use gpushim_trace::Layer;

/// Smallest difference of peaks and levels, bytes. Contexts and caches of libraries can differ by
/// as much.
const LEAST: f64 = (64_u64 << 20) as f64;
/// Smallest relative difference of peaks and levels.
const APART: f64 = 0.1;
/// Smallest difference, bytes, of a peak that is at least twice the usual one.
const LEAST_OF_TWICE: f64 = (16_u64 << 20) as f64;
/// Smallest relative difference of the allocations in an iteration.
const CALLS: f64 = 0.1;
/// Fewest iterations for comparing models. With fewer, the allocations before the first one weigh
/// too much.
const FEWEST: u64 = 5;
/// Share of a difference with which one function explains it.
const MOST: f64 = 0.6;

/// Returns the ranks whose iterations certainly leave memory allocated.
pub fn leaks(ranks: &[&RankSummary]) -> Vec<Outlier> {
    let mut found = Vec::new();
    for (index, rank) in ranks.iter().enumerate() {
        let mut its = rank.findings.iter();
        let leak = |one: &&crate::fleet::summary::Finding| one.sure && one.kind == "growth";
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

/// Returns the ranks that allocate another number of times in an iteration, or hold more or less
/// between iterations in all of their functions. Ranks in `explained` are left out.
pub fn other_models(ranks: &[&RankSummary], explained: &[usize]) -> Vec<Outlier> {
    let usual_of = Usual::of(ranks);
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
    let mut found = Vec::new();
    for level in by_level.iter().filter(|one| one.share() >= APART) {
        let Some((index, ..)) = known.get(level.index) else {
            continue;
        };
        let calls = by_calls
            .iter()
            .find(|one| one.index == level.index && one.share() >= CALLS);
        let excess = ranks
            .get(*index)
            .and_then(|rank| Excess::of(rank, &usual_of));
        // A difference in one function alone is no other model.
        let is_spread = excess
            .as_ref()
            .is_none_or(|excess| excess.first_share < MOST);
        let [its, usual] = [level.value, level.usual].map(|level| bytes(level as u64));
        let text = match calls {
            Some(calls) => format!(
                "An iteration allocates {:.0} times, elsewhere {:.0} times, and {its} are live between iterations, \
                 elsewhere {usual}.",
                calls.value, calls.usual,
            ),
            None if is_spread && excess.is_some() => format!(
                "Between iterations {its} are live, elsewhere {usual}, of the same functions."
            ),
            None => continue,
        };
        found.push(Outlier {
            bytes: level.apart() as u64,
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

/// Returns the ranks with a higher or lower peak than the others. Ranks in `explained` are left
/// out.
pub fn imbalance(ranks: &[&RankSummary], explained: &[usize]) -> Vec<Outlier> {
    let usual_of = Usual::of(ranks);
    // Where most ranks announce their tensors, one that does not cannot be compared.
    let has_tensors = |rank: &RankSummary| {
        let device = rank.main_device();
        device.is_some_and(|device| device.of == layer_name(Layer::Tensor))
    };
    let with = ranks.iter().filter(|rank| has_tensors(rank)).count();
    let is_usual = |rank: &RankSummary| has_tensors(rank) == (2 * with > ranks.len());
    let known: Vec<usize> = (ranks.iter().enumerate())
        .filter(|(index, rank)| !explained.contains(index) && is_usual(rank))
        .map(|(index, _)| index)
        .collect();
    let peak = |index: &usize| ranks.get(*index).map_or(0.0, |rank| rank.peak() as f64);
    let peaks: Vec<f64> = known.iter().map(peak).collect();
    let mut found = Vec::new();
    let is_far = |one: &Alone| one.share() >= APART && one.apart() >= LEAST;
    let is_twice = |one: &Alone| one.share() >= 1.0 && one.apart() >= LEAST_OF_TWICE;
    let mut far: Vec<Alone> = alone(&peaks, LEAST);
    far.retain(is_far);
    let mut twice = alone(&peaks, LEAST_OF_TWICE);
    twice.retain(|one| is_twice(one) && far.iter().all(|far| far.index != one.index));
    for one in far.into_iter().chain(twice) {
        let Some(index) = known.get(one.index).copied() else {
            continue;
        };
        let more = match one.value > one.usual {
            true => "more",
            false => "less",
        };
        let by = match one.usual > 0.0 {
            true => format!("{} {more}", percent(one.share(), 1.0)),
            false => more.to_string(),
        };
        let excess = ranks
            .get(index)
            .and_then(|rank| Excess::of(rank, &usual_of));
        let mut text = format!(
            "The peak is {}, {by} than the usual {} of the other ranks",
            bytes(one.value as u64),
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
            bytes: one.apart() as u64,
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

/// Usual figures at the peak of a rank.
struct Usual<'a> {
    /// Bytes, and the call site in some rank, by function.
    functions: BTreeMap<&'a str, (u64, &'a Site)>,
    peak: u64,
}

impl<'a> Usual<'a> {
    fn of(ranks: &[&'a RankSummary]) -> Usual<'a> {
        let mut all: BTreeMap<&str, (Vec<u64>, &Site)> = BTreeMap::new();
        for holder in ranks.iter().flat_map(|rank| holders(rank)) {
            let name = holder.site.function.as_str();
            let of = all.entry(name).or_insert((Vec::new(), &holder.site));
            of.0.push(holder.bytes);
        }
        let middle = |(mut bytes, site): (Vec<u64>, &'a Site)| {
            // Ranks without the function count as 0 bytes.
            bytes.resize(ranks.len().max(bytes.len()), 0);
            bytes.sort_unstable();
            (bytes.get(bytes.len() / 2).copied().unwrap_or(0), site)
        };
        let peaks = ranks.iter().map(|rank| rank.peak() as f64).collect();
        Usual {
            functions: all
                .into_iter()
                .map(|(name, of)| (name, middle(of)))
                .collect(),
            peak: median(peaks) as u64,
        }
    }
}

/// Function with the largest difference between the peak of a rank and the usual one.
struct Excess {
    site: Site,
    its: u64,
    usual: u64,
    /// Share of this function in all differences of the same direction, 0 to 1.
    first_share: f64,
}

impl Excess {
    /// Compares a rank with the usual figures. `None` if no function with a name differs.
    fn of(rank: &RankSummary, usual: &Usual<'_>) -> Option<Excess> {
        let its: BTreeMap<&str, u64> = holders(rank)
            .iter()
            .map(|one| (one.site.function.as_str(), one.bytes))
            .collect();
        let is_more = rank.peak() >= usual.peak;
        let functions = usual.functions.iter();
        let apart = functions.map(|(name, (usual, site))| {
            let here = its.get(name).copied().unwrap_or(0);
            let by = match is_more {
                true => here.saturating_sub(*usual),
                false => usual.saturating_sub(here),
            };
            (by, *name, here, *usual, *site)
        });
        let apart: Vec<_> = apart.filter(|(by, ..)| *by > 0).collect();
        let sum = apart
            .iter()
            .fold(0_u64, |sum, one| sum.saturating_add(one.0));
        let named = apart.into_iter().filter(|(_, name, ..)| !name.is_empty());
        let (by, _, here, usual, site) = named.max_by_key(|(by, ..)| *by)?;
        Some(Excess {
            site: site.clone(),
            its: here,
            usual,
            first_share: by as f64 / sum.max(1) as f64,
        })
    }
}

fn holders(rank: &RankSummary) -> &[Holder] {
    rank.main_device().map_or(&[], |device| &device.holders)
}

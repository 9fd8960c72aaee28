//! Finds ranks with slower iterations than the others, and ranks with fewer iterations.

use crate::fleet::outlier::{Kind, Outlier};
use crate::fleet::roles::{alone, median};
use crate::fleet::summary::{Iterations, Phase, RankSummary};
use crate::output::escape::shown;
use crate::output::units::{count, percent, span};

/// Smallest relative difference from the usual time of an iteration.
const SLOWER: f64 = 0.2;
/// Smallest difference from the usual time of an iteration, ns. Shorter ones are noise.
const LEAST_NS: f64 = 1_000_000.0;
/// Smallest deficit of iterations, relative and absolute. Both must be reached.
const BEHIND: f64 = 0.1;
const LEAST: f64 = 5.0;
/// Fewest iterations for comparing the pace.
const FEWEST: u64 = 5;

/// Returns the ranks that are slower or behind. Ranks that died are left out.
pub fn stragglers(ranks: &[&RankSummary], died: &[usize]) -> Vec<Outlier> {
    let all = ranks.iter().enumerate();
    let known: Vec<(usize, &RankSummary, &Iterations)> = all
        .filter(|(index, _)| !died.contains(index))
        .filter_map(|(index, rank)| Some((index, *rank, rank.iterations.as_ref()?)))
        .filter(|(.., of)| of.sure && of.count >= FEWEST)
        .collect();
    let paces: Vec<f64> = known.iter().map(|(.., of)| of.median_ns as f64).collect();
    let counts: Vec<f64> = known.iter().map(|(.., of)| of.count as f64).collect();
    let usual_count = median(counts.clone());
    let mut found = Vec::new();
    for one in alone(&paces, LEAST_NS) {
        if one.value < one.usual || one.share() < SLOWER {
            continue;
        }
        let Some((index, rank, of)) = known.get(one.index) else {
            continue;
        };
        let phase = slowest(rank, &known);
        let mut text = format!(
            "An iteration takes {}, {} longer than the usual {}",
            span(of.median_ns),
            percent(one.share(), 1.0),
            span(one.usual as u64)
        );
        if let Some((phase, its, usual)) = phase {
            text.push_str(&format!(
                ", most of it in `{}`: {} there, usually {}",
                shown(phase),
                span(its as u64),
                span(usual as u64)
            ));
        }
        text.push('.');
        let why = "the median of its iterations is compared; where ranks wait for each other all are as slow";
        found.push(Outlier::of(Kind::Straggler, *index, text, (true, why)));
    }
    for one in alone(&counts, LEAST) {
        let Some((index, ..)) = known.get(one.index) else {
            continue;
        };
        let is_known = found.iter().any(|known| known.members.contains(index));
        if is_known || one.value + LEAST > usual_count || one.value > usual_count * (1.0 - BEHIND) {
            continue;
        }
        let text = format!(
            "It did {} iterations, the others {}.",
            count(one.value as u64),
            count(usual_count as u64)
        );
        let why = "it may have started later, or do other work by design";
        found.push(Outlier::of(Kind::Straggler, *index, text, (false, why)));
    }
    found
}

/// Returns the innermost phase whose lag is near the largest: its name, the rank's time for one
/// pass, and the median time of all ranks, both ns. `None`: no lag.
fn slowest<'a>(
    rank: &'a RankSummary,
    known: &[(usize, &RankSummary, &Iterations)],
) -> Option<(&'a str, f64, f64)> {
    let once = |phase: &Phase| phase.ns as f64 / phase.count.max(1) as f64;
    let lag = |phase: &'a Phase| {
        let same = known.iter().filter_map(|(_, other, _)| {
            let mut phases = other.phases.iter();
            phases.find(|one| one.name == phase.name).map(once)
        });
        let usual = median(same.collect());
        (phase.name.as_str(), once(phase), usual)
    };
    // An outer phase lags as much as its inner ones. The last phase within a tenth of the largest
    // lag is the innermost.
    let lags: Vec<_> = rank.phases.iter().map(lag).collect();
    let by = |(_, its, usual): &(&str, f64, f64)| its - usual;
    let most = lags.iter().map(by).fold(0.0, f64::max);
    let mut near = lags
        .into_iter()
        .filter(|one| by(one) > 0.0 && by(one) >= 0.9 * most);
    near.next_back()
}

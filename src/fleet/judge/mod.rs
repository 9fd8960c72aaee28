//! Finds ranks that are unlike the others, from their summaries alone.

mod ends;
mod memory;
mod pace;
mod settings;

use super::outlier::{Kind, Outlier};
use super::summary::RankSummary;

pub use ends::missing;

/// Returns all outliers, each of one rank, the gravest kind first. A finding that explains another
/// one suppresses it: a rank with a leak holds more for that reason.
pub fn outliers(ranks: &[&RankSummary]) -> Vec<Outlier> {
    let mut found = ends::out_of_memory(ranks);
    found.extend(ends::died(ranks));
    found.extend(memory::leaks(ranks));
    let mut explained = of(&found);
    found.extend(memory::other_models(ranks, &explained));
    explained = of(&found);
    found.extend(memory::imbalance(ranks, &explained));
    found.extend(settings::others(ranks));
    let died: Vec<usize> = (found.iter())
        .filter(|one| one.kind == Kind::Died)
        .flat_map(|one| one.members.clone())
        .collect();
    found.extend(pace::stragglers(ranks, &died));
    found.sort_by_key(|one| (one.kind, one.members.first().copied()));
    found
}

/// Returns the ranks of some outliers.
fn of(found: &[Outlier]) -> Vec<usize> {
    found.iter().flat_map(|one| one.members.clone()).collect()
}

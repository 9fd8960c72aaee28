//! Which ranks are unlike the others, from their summaries alone.

mod ends;
mod memory;
mod pace;
mod settings;

use super::outlier::{Kind, Outlier};
use super::summary::RankSummary;

pub use ends::missing;

/// All outliers, each of one rank, the gravest first. What one finding explains is not told again as another: a rank that
/// leaks holds more for that reason.
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

/// The ranks that some outliers are about.
fn of(found: &[Outlier]) -> Vec<usize> {
    found.iter().flat_map(|one| one.members.clone()).collect()
}

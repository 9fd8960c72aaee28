//! Finds ranks that ran out of memory, dead ranks, and missing ranks.

use std::collections::BTreeSet;

use crate::fleet::outlier::{Kind, Outlier};
use crate::fleet::summary::RankSummary;
use crate::output::units::{count, span};
use crate::top::State;

/// Silence after which a rank of unknown end counts as dead, ns. It is the time from its last event
/// to the last event of any rank.
const SILENCE: u64 = 60_000_000_000;

/// Returns the ranks with a request that was refused.
pub fn out_of_memory(ranks: &[&RankSummary]) -> Vec<Outlier> {
    let all = ranks.iter().enumerate();
    let failed = all.filter(|(_, rank)| rank.out_of_memory > 0);
    let outlier = |(index, rank): (usize, &&RankSummary)| {
        let mut its = rank.findings.iter();
        let finding = its.find(|one| one.kind == "out-of-memory");
        let text = finding.map_or_else(
            || format!("{} requests ran out of memory.", count(rank.out_of_memory)),
            |finding| finding.text.clone(),
        );
        Outlier {
            bytes: finding.map_or(0, |finding| finding.bytes),
            site: finding.and_then(|finding| finding.site.clone()),
            ..Outlier::of(
                Kind::OutOfMemory,
                index,
                text,
                (true, "the allocator that refused it said so"),
            )
        }
    };
    failed.map(outlier).collect()
}

/// Returns the ranks that ended without a note of their end, while others noted theirs or
/// continued.
pub fn died(ranks: &[&RankSummary]) -> Vec<Outlier> {
    let ended = ranks.iter().filter(|rank| rank.end.state == State::Ended);
    let has_ended = ended.count() > 0;
    let last = ranks.iter().map(|rank| rank.last_wall_ns()).max();
    let last = last.unwrap_or(0);
    let is_dead = |rank: &RankSummary| match rank.end.state {
        State::Died => has_ended || is_killed(rank) || last > rank.last_wall_ns() + SILENCE,
        State::Unknown => {
            rank.process.pid.is_some() && has_ended && last > rank.last_wall_ns() + SILENCE
        }
        State::Running | State::Ended => false,
    };
    let all = ranks.iter().enumerate();
    let outlier = |(index, rank): (usize, &&RankSummary)| {
        let after = span(rank.process.last_ns);
        let by = match &rank.end.by {
            Some(by) => format!(" by {by}"),
            None => " without a note of its end".to_string(),
        };
        let steps = match &rank.iterations {
            Some(iterations) => format!(", in iteration {}", count(iterations.count)),
            None => String::new(),
        };
        let (sure, why) = match (is_killed(rank), rank.end.state) {
            (true, _) => (true, "its parent was told so"),
            (_, State::Died) => (
                true,
                "its process is gone, and its trace has no note of an end, as others have",
            ),
            _ => (
                false,
                "its trace has no note of an end and no events since, and its host was not asked",
            ),
        };
        let text = format!("It ended after {after}{steps},{by}.");
        Outlier::of(Kind::Died, index, text, (sure, why))
    };
    all.filter(|(_, rank)| is_dead(rank)).map(outlier).collect()
}

fn is_killed(rank: &RankSummary) -> bool {
    rank.end
        .by
        .as_ref()
        .is_some_and(|by| by.starts_with("signal"))
}

/// Returns the size of the job according to the launcher, and the ranks without a file. Ranks are
/// expected below that size, or else below the highest rank with a file.
pub fn missing(ranks: &[&RankSummary]) -> (Option<u32>, Vec<u32>) {
    let there: BTreeSet<u32> = ranks.iter().filter_map(|rank| rank.process.rank).collect();
    let world = ranks.iter().filter_map(|rank| rank.process.world).max();
    let highest = there.last().map_or(0, |rank| rank.saturating_add(1));
    // Limits the memory that a wrong size could take.
    let most = (there.len() as u32)
        .saturating_mul(64)
        .saturating_add(1 << 16);
    let expected = 0..world.unwrap_or(highest).min(most);
    let missing = expected.filter(|rank| !there.contains(rank));
    (world, missing.collect())
}

//! Parts of a recording that cannot be replayed as they are.

use serde::Serialize;

use crate::ledger::MADE_BEFORE;

/// Events of a recording that are contradictory or not supported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Anomalies {
    /// Blocks that were made before the recording began: they are its first requests.
    pub made_before: u64,
    /// Frees of no bytes where nothing was live; left out.
    pub unmatched_frees: u64,
    /// Allocations of addresses where something was live, which then counts as freed.
    pub double_allocations: u64,
    /// Allocations of no bytes; left out.
    pub empty: u64,
    /// Memory that no pool would serve (pinned, managed, arrays, imported, …): how many blocks.
    pub not_pooled: u64,
    /// Blocks beyond what can be numbered; left out.
    pub too_many: u64,
    /// Requests on streams beyond the first [`STREAMS`](super::STREAMS); those count as one stream.
    pub more_streams: u64,
    /// The first of these, by event.
    pub first: Option<u64>,
}

impl Anomalies {
    /// Returns one sentence for each kind, for people.
    pub fn sentences(&self) -> Vec<String> {
        let counts = [
            (
                self.unmatched_frees,
                "frees of no bytes where nothing was live are left out",
            ),
            (
                self.double_allocations,
                "allocations are of an address that was live: that block counts as freed then",
            ),
            (self.empty, "allocations of no bytes are left out"),
            (
                self.more_streams,
                "requests are on streams beyond the limit: these count as one stream",
            ),
            (
                self.too_many,
                "blocks are more than can be numbered, and left out",
            ),
        ];
        let some = counts.into_iter().filter(|(count, _)| *count > 0);
        let mut sentences: Vec<String> = some
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if let (Some(event), Some(last)) = (self.first, sentences.last_mut()) {
            *last += &format!("; the first of all these is event {event}");
        }
        if self.made_before > 0 {
            sentences.push(format!(
                "{} blocks were {MADE_BEFORE}: they are the first requests",
                self.made_before
            ));
        }
        if self.not_pooled > 0 {
            sentences.push(format!(
                "{} blocks of pinned, managed or imported memory are not replayed",
                self.not_pooled
            ));
        }
        sentences
    }
}

//! A finding: its size, place, certainty and fix.

use std::cmp::Reverse;

use serde::Serialize;

use crate::recording::CallSite;

/// Subject of a finding, by importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A request that ran out of memory.
    OutOfMemory,
    /// Live memory that rises with each pass of a loop.
    Growth,
    /// A sudden fall of live memory that lasts.
    Drops,
    /// Reserved memory that is free in pieces, beside live blocks.
    Fragmentation,
    /// Memory that an allocator reserved and did not hand out.
    Unused,
    /// Memory of the device that this process does not hold.
    Elsewhere,
    /// A rank that holds more than the others of its job.
    Imbalance,
}

impl Kind {
    /// Returns the name that JSON has.
    pub fn name(self) -> &'static str {
        match self {
            Kind::OutOfMemory => "out-of-memory",
            Kind::Growth => "growth",
            Kind::Drops => "drops",
            Kind::Fragmentation => "fragmentation",
            Kind::Unused => "unused",
            Kind::Elsewhere => "elsewhere",
            Kind::Imbalance => "imbalance",
        }
    }

    /// True if the finding is about memory that iterations keep.
    pub fn is_of_iterations(self) -> bool {
        self == Kind::Growth
    }

    /// True if something is wrong with the run. The other kinds are about memory that could be
    /// saved.
    pub fn is_fault(self) -> bool {
        matches!(self, Kind::OutOfMemory | Kind::Growth | Kind::Drops)
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// What it is about.
    pub kind: Kind,
    /// Kind of memory: `tensors`, `device memory`, `pinned host memory` and so on.
    pub of: &'static str,
    /// It in sentences: what, and how much.
    pub text: String,
    /// Bytes that it is about: those that were kept, are unused, or were asked for in vain.
    pub bytes: u64,
    /// Bytes for each iteration, where it is about iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_iteration: Option<f64>,
    /// The call site that is responsible, if it is known.
    pub site: Option<CallSite>,
    /// Who keeps most of it, in words, where that was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<String>,
    /// Whether it is certain.
    pub sure: bool,
    /// Why it is certain, or not.
    pub why: String,
    /// Remedy, where the pattern is known.
    pub fix: Option<String>,
    /// The command that says more.
    pub next: String,
}

impl Finding {
    /// Returns the sort key among findings. The order is by these criteria:
    ///
    /// 1. A request that ran out of memory comes first.
    /// 2. Faults come before possible savings.
    /// 3. Certain findings come before likely ones.
    /// 4. More bytes come before fewer.
    pub fn rank(&self) -> impl Ord + use<> {
        (
            self.kind != Kind::OutOfMemory,
            !self.kind.is_fault(),
            !self.sure,
            Reverse(self.bytes),
            self.kind,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: Kind, sure: bool, bytes: u64) -> Finding {
        Finding {
            kind,
            of: "tensors",
            text: String::new(),
            bytes,
            per_iteration: None,
            site: None,
            kept_by: None,
            sure,
            why: String::new(),
            fix: None,
            next: String::new(),
        }
    }

    #[test]
    fn the_most_important_comes_first() {
        let order = [
            (Kind::OutOfMemory, true, 1),
            (Kind::Growth, true, 9),
            (Kind::Growth, true, 5),
            (Kind::Drops, false, 99),
            (Kind::Unused, true, 1000),
            (Kind::Fragmentation, true, 100),
            (Kind::Imbalance, false, 2000),
        ];
        let all = order.map(|(kind, sure, bytes)| finding(kind, sure, bytes));
        let mut mixed = all.to_vec();
        mixed.reverse();
        mixed.sort_by_key(Finding::rank);
        assert_eq!(mixed, all);
        for one in all {
            let name = serde_json::to_value(one.kind).unwrap();
            assert_eq!(name, one.kind.name());
        }
    }
}

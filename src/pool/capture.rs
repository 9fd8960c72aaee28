//! Stream captures, and the graphs that hold memory.
//!
//! From the first capture that begins to the last one that ends is one *group*. A block that was
//! handed out or freed meanwhile may be part of any graph that the group ends in, so its free
//! waits in the group's quarantine until every such graph, and every graph derived from one, is
//! destroyed.

use super::slab::Id;
use rustc_hash::FxHashMap;

#[derive(Default)]
struct Group {
    /// Graphs that hold the group, and one more while it is open.
    holders: usize,
    blocks: Vec<Id>,
}

/// Which captures are open and which graphs hold what.
#[derive(Default)]
pub(crate) struct Captures {
    open: usize,
    /// The group that is open, or was last.
    group: u32,
    groups: FxHashMap<u32, Group>,
    graphs: FxHashMap<u64, Vec<u32>>,
}

impl Captures {
    /// Whether any stream captures.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// The open group, or 0.
    #[inline]
    pub fn current(&self) -> u32 {
        if self.open > 0 { self.group } else { 0 }
    }

    /// A capture begins.
    pub fn began(&mut self) {
        if self.open == 0 {
            self.group = self.group.checked_add(1).unwrap_or(1);
            self.groups.entry(self.group).or_default().holders += 1;
        }
        self.open += 1;
    }

    /// A capture ended, in a graph or in nothing. Returns the blocks that nothing holds any more.
    pub fn ended(&mut self, graph: Option<u64>) -> Vec<Id> {
        if self.open == 0 {
            return Vec::new();
        }
        if let Some(graph) = graph {
            self.hold(graph, self.group);
        }
        self.open -= 1;
        if self.open == 0 {
            self.release(self.group)
        } else {
            Vec::new()
        }
    }

    fn hold(&mut self, graph: u64, group: u32) {
        let held = self.graphs.entry(graph).or_default();
        if !held.contains(&group)
            && let Some(entry) = self.groups.get_mut(&group)
        {
            held.push(group);
            entry.holders += 1;
        }
    }

    fn release(&mut self, group: u32) -> Vec<Id> {
        let Some(entry) = self.groups.get_mut(&group) else {
            return Vec::new();
        };
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders > 0 {
            return Vec::new();
        }
        self.groups
            .remove(&group)
            .map(|group| group.blocks)
            .unwrap_or_default()
    }

    /// `to` was made from `from`, or updated with it: it holds what `from` holds.
    pub fn derived(&mut self, from: u64, to: u64) {
        for group in self.graphs.get(&from).cloned().unwrap_or_default() {
            self.hold(to, group);
        }
    }

    /// A graph is gone. Returns the blocks that nothing holds any more.
    pub fn destroyed(&mut self, graph: u64) -> Vec<Id> {
        let groups = self.graphs.remove(&graph).unwrap_or_default();
        groups
            .into_iter()
            .flat_map(|group| self.release(group))
            .collect()
    }

    /// Puts a freed block into quarantine if the open group, or the one that the block was handed
    /// out under, may still use it.
    #[inline]
    pub fn quarantine(&mut self, block: Id, group: u32) -> bool {
        if self.open == 0 && group == 0 {
            return false;
        }
        let group = if self.open > 0 { self.group } else { group };
        match self.groups.get_mut(&group) {
            Some(entry) => {
                entry.blocks.push(block);
                true
            }
            None => false,
        }
    }

    /// Keeps a block that one group let go of in the quarantine of the group that it was handed out
    /// under, if that is another one and lives.
    pub fn hold_back(&mut self, block: Id, group: u32) -> bool {
        let entry = self.groups.get_mut(&group);
        let held = entry.is_some();
        entry.into_iter().for_each(|entry| entry.blocks.push(block));
        held
    }

    /// Forgets blocks that no longer exist.
    pub fn forget(&mut self, gone: impl Fn(Id) -> bool) {
        for group in self.groups.values_mut() {
            group.blocks.retain(|block| !gone(*block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_lives_as_long_as_its_graphs() {
        let mut captures = Captures::default();
        captures.began();
        captures.began();
        let group = captures.current();
        assert!(captures.quarantine(7, 0));
        assert!(captures.ended(Some(100)).is_empty());
        assert!(captures.ended(None).is_empty());
        assert!(!captures.is_open());
        assert!(captures.quarantine(8, group));
        captures.derived(100, 101);
        captures.derived(100, 101);
        assert!(captures.destroyed(100).is_empty());
        let mut freed = captures.destroyed(101);
        freed.sort_unstable();
        assert_eq!(freed, [7, 8]);
        assert!(!captures.quarantine(9, group), "nothing holds it any more");
    }

    #[test]
    fn a_group_without_a_graph_ends_at_once() {
        let mut captures = Captures::default();
        captures.began();
        captures.quarantine(1, 0);
        assert_eq!(captures.ended(None), [1]);
        assert!(
            captures.ended(None).is_empty(),
            "an end without a beginning is ignored"
        );
        assert!(captures.destroyed(5).is_empty());
    }
}

//! Stream captures, and the graphs that hold memory.
//!
//! A block allocated or freed while streams capture may be part of the graph of any of these
//! captures. Its free waits until each of them is *over*. A capture is over if it ended without a
//! graph, or if its graph and every graph derived from it are destroyed. Blocks that wait for the
//! same captures share a *set*.
//!
//! If the driver would have carried out the free at once, the program no longer uses the block. The
//! wait is dropped when memory runs short.
//!
//! If the driver would have refused the allocation or the free, the program depends on the block:
//! it is *kept*. Natively such an allocation would have invalidated certain captures, so the block
//! is kept only until these are over.
//!
//! A capture that is *broken* ends in no graph, so nothing waits for it. It stays open: the driver
//! continues to refuse the same calls.

use crate::mutation::{Mutation, planted};
use crate::slab::Id;
use rustc_hash::FxHashMap;

/// A capture that is not over.
#[derive(Default)]
struct Capture {
    /// Number of graphs that hold the capture, plus one while it is open.
    holders: usize,
    /// Numbers of the sets that include the capture.
    sets: Vec<u32>,
}

/// Blocks that wait for the same captures.
struct Set {
    /// Number of its captures that are not over.
    captures: usize,
    blocks: Vec<Id>,
}

/// State of all captures: the open ones, and the blocks that captures and graphs hold.
#[derive(Default)]
pub(crate) struct Captures {
    open: Vec<u64>,
    /// Set of the open captures; 0 if none is needed yet.
    set: u32,
    last: u32,
    captures: FxHashMap<u64, Capture>,
    sets: FxHashMap<u32, Set>,
    graphs: FxHashMap<u64, Vec<u64>>,
    /// Captures that each kept block, live or freed, is kept for. Such a block is not reused before
    /// they are over.
    kept: FxHashMap<Id, Vec<u64>>,
}

impl Captures {
    /// True if any stream captures.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Set for a block that is allocated now; 0 for none.
    #[inline]
    pub fn group(&mut self) -> u32 {
        match planted(Mutation::NoGroup) {
            true => 0,
            false => self.current(),
        }
    }

    /// Set of the open captures, or 0.
    #[inline]
    fn current(&mut self) -> u32 {
        if self.open.is_empty() {
            return 0;
        }
        self.set_of_open()
    }

    #[cold]
    fn set_of_open(&mut self) -> u32 {
        if self.set != 0 {
            return self.set;
        }
        let number = self.last.checked_add(1).unwrap_or(1);
        let (mut captures, blocks) = (0, Vec::new());
        for capture in &self.open {
            if let Some(capture) = self.captures.get_mut(capture) {
                capture.sets.push(number);
                captures += 1;
            }
        }
        if captures == 0 {
            return 0;
        }
        (self.last, self.set) = (number, number);
        self.sets.insert(number, Set { captures, blocks });
        number
    }

    /// Opens a capture under a number that no other capture has.
    pub fn began(&mut self, capture: u64) {
        if !self.open.contains(&capture) {
            self.open.push(capture);
            self.set = 0;
            self.captures.entry(capture).or_default().holders += 1;
        }
    }

    /// Breaks an open capture: it cannot end in a graph any more. Returns the blocks that nothing
    /// holds any more.
    pub fn broken(&mut self, capture: u64) -> Vec<Id> {
        if !self.open.contains(&capture) {
            return Vec::new();
        }
        self.set = 0;
        self.release(capture)
    }

    /// Ends a capture, in a graph or in nothing. Returns the blocks that nothing holds any more.
    pub fn ended(&mut self, capture: u64, graph: Option<u64>) -> Vec<Id> {
        let Some(at) = self.open.iter().position(|open| *open == capture) else {
            return Vec::new();
        };
        self.open.swap_remove(at);
        self.set = 0;
        if let Some(graph) = graph.filter(|_| !planted(Mutation::NoGraphs)) {
            self.hold(graph, capture);
        }
        self.release(capture)
    }

    fn hold(&mut self, graph: u64, capture: u64) {
        let held = self.graphs.entry(graph).or_default();
        if !held.contains(&capture)
            && let Some(entry) = self.captures.get_mut(&capture)
        {
            held.push(capture);
            entry.holders += 1;
        }
    }

    /// Removes one holder of a capture. The capture is over with its last holder. Returns the
    /// blocks of sets whose captures are all over.
    fn release(&mut self, capture: u64) -> Vec<Id> {
        let mut free = Vec::new();
        let Some(entry) = self.captures.get_mut(&capture) else {
            return free;
        };
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders > 0 {
            return free;
        }
        let over = self.captures.remove(&capture).unwrap_or_default();
        for number in over.sets {
            let Some(set) = self.sets.get_mut(&number) else {
                continue;
            };
            set.captures = set.captures.saturating_sub(1);
            if set.captures == 0 {
                free.extend(self.sets.remove(&number).into_iter().flat_map(|s| s.blocks));
            }
        }
        free
    }

    /// Takes note that `to` was made from `from`, or updated with it: it holds what `from` holds.
    pub fn derived(&mut self, from: u64, to: u64) {
        if planted(Mutation::NoDerived) {
            return;
        }
        for capture in self.graphs.get(&from).cloned().unwrap_or_default() {
            self.hold(to, capture);
        }
    }

    /// Takes note that a graph was destroyed. Returns the blocks that nothing holds any more.
    pub fn destroyed(&mut self, graph: u64) -> Vec<Id> {
        let captures = self.graphs.remove(&graph).unwrap_or_default();
        captures
            .into_iter()
            .flat_map(|capture| self.release(capture))
            .collect()
    }

    /// Puts a freed block into quarantine if an open capture may still use it, or a capture of the
    /// set that it was allocated under. Returns true if it did.
    #[inline(always)]
    pub fn quarantine(&mut self, block: Id, set: u32) -> bool {
        let is_free = self.open.is_empty() && set == 0 && self.kept.is_empty();
        !is_free && !planted(Mutation::NoQuarantine) && self.hold_freed(block, set)
    }

    #[cold]
    fn hold_freed(&mut self, block: Id, set: u32) -> bool {
        if self.open.is_empty() && set == 0 {
            self.kept.remove(&block);
            return false;
        }
        let open = self.current();
        self.hold_in(block, if open != 0 { open } else { set })
    }

    /// Holds a block that one set has released, in the set of its allocation, if this still exists.
    /// Returns false if the block is free.
    pub fn hold_back(&mut self, block: Id, set: u32) -> bool {
        !planted(Mutation::NoHoldBack) && self.hold_in(block, set)
    }

    fn hold_in(&mut self, block: Id, set: u32) -> bool {
        match self.sets.get_mut(&set) {
            Some(entry) => {
                entry.blocks.push(block);
                true
            }
            None => {
                self.kept.remove(&block);
                false
            }
        }
    }

    /// Keeps a block that the driver would have refused to allocate because of these captures. If
    /// its free must wait, it waits for them even if memory is short.
    pub fn keep(&mut self, block: Id, captures: Vec<u64>) {
        if !planted(Mutation::GiveUpKept) {
            self.kept.insert(block, captures);
        }
    }

    /// Keeps a block that the driver would have refused to free. Its free waits for the open
    /// captures even if memory is short. A block that is kept already keeps its captures.
    pub fn keep_freed(&mut self, block: Id) {
        if planted(Mutation::GiveUpKept) {
            return;
        }
        let open = &self.open;
        self.kept.entry(block).or_insert_with(|| open.clone());
    }

    /// Takes the blocks that the driver would have freed out of quarantine, because memory is
    /// short.
    pub fn give_up(&mut self) -> Vec<Id> {
        let (kept, captures) = (&mut self.kept, &self.captures);
        let mut free = Vec::new();
        if planted(Mutation::NoGiveUp) {
            return free;
        }
        for set in self.sets.values_mut() {
            set.blocks.retain(|block| {
                let goes = !is_kept(kept, captures, *block);
                if goes {
                    kept.remove(block);
                    free.push(*block);
                }
                !goes
            });
        }
        free
    }

    /// Forgets blocks that no longer exist.
    pub fn forget(&mut self, gone: impl Fn(Id) -> bool) {
        for set in self.sets.values_mut() {
            set.blocks.retain(|block| !gone(*block));
        }
        self.kept.retain(|block, _| !gone(*block));
    }
}

/// True if a block is kept for a capture that is not over.
fn is_kept(kept: &FxHashMap<Id, Vec<u64>>, captures: &FxHashMap<u64, Capture>, block: Id) -> bool {
    let lasts = |capture: &u64| captures.contains_key(capture);
    kept.get(&block).is_some_and(|of| of.iter().any(lasts))
}

#[cfg(test)]
impl Captures {
    pub fn is_kept(&self, block: Id) -> bool {
        is_kept(&self.kept, &self.captures, block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(mut ids: Vec<Id>) -> Vec<Id> {
        ids.sort_unstable();
        ids
    }

    #[test]
    fn a_capture_is_over_with_its_graphs() {
        let mut captures = Captures::default();
        captures.began(1);
        captures.began(2);
        let both = captures.current();
        assert!(captures.quarantine(7, 0));
        assert!(captures.ended(1, Some(100)).is_empty());
        assert!(captures.ended(2, None).is_empty());
        assert!(!captures.is_open());
        assert!(captures.quarantine(8, both));
        captures.derived(100, 101);
        captures.derived(100, 101);
        assert!(captures.destroyed(100).is_empty());
        assert_eq!(sorted(captures.destroyed(101)), [7, 8]);
        assert!(!captures.quarantine(9, both), "nothing holds it any more");
    }

    #[test]
    fn a_block_waits_for_the_captures_that_were_open() {
        let mut captures = Captures::default();
        captures.began(1);
        assert!(captures.quarantine(10, 0));
        captures.began(2);
        assert!(captures.quarantine(20, 0));
        assert_eq!(captures.ended(1, None), [10], "2 began after its free");
        assert!(captures.quarantine(30, 0));
        captures.began(3);
        assert_eq!(sorted(captures.ended(2, None)), [20, 30]);
        assert!(captures.ended(3, None).is_empty());
    }

    #[test]
    fn an_end_without_a_beginning_is_ignored() {
        let mut captures = Captures::default();
        captures.began(1);
        captures.quarantine(1, 0);
        assert!(captures.ended(5, Some(4)).is_empty());
        assert_eq!(captures.ended(1, None), [1]);
        assert!(captures.ended(1, None).is_empty());
        assert!(captures.destroyed(5).is_empty());
    }

    #[test]
    fn what_the_driver_would_have_refused_is_kept() {
        let mut captures = Captures::default();
        captures.began(1);
        captures.keep(7, vec![1]);
        assert!(captures.quarantine(7, 0));
        assert!(captures.quarantine(8, 0));
        assert_eq!(captures.give_up(), [8]);
        assert!(captures.ended(1, Some(100)).is_empty());
        assert!(captures.give_up().is_empty(), "the graph needs it");
        let free = captures.destroyed(100);
        assert_eq!(free, [7]);
        assert!(!captures.hold_back(7, 1));
        captures.began(2);
        assert!(captures.quarantine(7, 0));
        assert_eq!(captures.give_up(), [7], "it was kept for that time only");
    }

    #[test]
    fn nothing_waits_for_a_broken_capture() {
        let mut captures = Captures::default();
        captures.began(1);
        captures.keep_freed(7);
        assert!(captures.quarantine(7, 0));
        assert_eq!(captures.broken(1), [7]);
        assert!(captures.is_open(), "the driver refuses what it refused");
        assert!(!captures.quarantine(8, 0));
        assert!(captures.broken(1).is_empty());
        assert!(captures.ended(1, Some(100)).is_empty());
        assert!(captures.destroyed(100).is_empty());
        assert!(!captures.is_open() && captures.sets.is_empty());
    }

    #[test]
    fn a_block_that_was_refused_is_kept_as_long_as_what_refused_it() {
        let mut captures = Captures::default();
        captures.began(1);
        captures.began(2);
        captures.keep(7, vec![1]);
        captures.keep_freed(7);
        captures.keep_freed(8);
        assert!(captures.quarantine(7, 0));
        assert!(captures.quarantine(8, 0));
        assert!(captures.give_up().is_empty());
        assert!(captures.broken(1).is_empty(), "2 may use both");
        assert_eq!(captures.give_up(), [7]);
        assert_eq!(captures.ended(2, None), [8]);
    }

    #[test]
    fn captures_come_and_go_beside_one_that_stays() {
        let mut captures = Captures::default();
        captures.began(0);
        for capture in 1..1000 {
            captures.began(capture);
            captures.ended(capture, None);
        }
        assert!(captures.sets.is_empty(), "no block needs any");
        assert_eq!(captures.captures.len(), 1);
    }
}

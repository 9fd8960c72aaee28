//! The bytes of each stack.

use rustc_hash::FxHashMap;

use crate::ledger::{Block, Focus, LiveAt, Moment, Visitor, walk};
use crate::loops::Iterations;
use crate::peak::Peak;
use crate::phases::busiest;
use crate::recording::Recording;
use gpushim_trace::{Kind, Record};

/// Which bytes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Of blocks that were live at the end.
    Live,
    /// Of those that were live when most was.
    Peak,
    /// Of all blocks.
    Total,
    /// Of those that were freed in the iteration in which they were allocated; where no iterations are found,
    /// in the same range, the innermost of the thread that announces most.
    Temporary,
}

/// A stack, and whether its blocks were made before the recording began, and have none.
pub type Stack = (u32, bool);

/// The bytes of each stack, those with most first.
pub fn weights(recording: &dyn Recording, focus: Focus, weight: Weight) -> Vec<(Stack, u64)> {
    let mut sums = Sums::default();
    match weight {
        Weight::Live => sums.add_all(&walk(recording, focus, &mut [])),
        Weight::Peak => {
            let mut live = LiveAt::new(Peak::at(recording, focus, Moment::Peak).ticket);
            walk(recording, focus, &mut [&mut live]);
            sums.add_all(&live.into_blocks());
        }
        Weight::Total => {
            let mut total = Total { sums };
            walk(recording, focus, &mut [&mut total]);
            sums = total.sums;
        }
        Weight::Temporary => {
            let iterations = Iterations::find(recording, focus);
            let mut temporary = Temporary {
                thread: busiest(recording),
                iterations: iterations.as_ref(),
                ranges: vec![0],
                begun: 0,
                born: FxHashMap::default(),
                sums,
            };
            walk(recording, focus, &mut [&mut temporary]);
            sums = temporary.sums;
        }
    }
    sums.in_order()
}

#[derive(Default)]
struct Sums(FxHashMap<Stack, u64>);

impl Sums {
    fn add(&mut self, block: &Block) {
        let stack = (block.stack, block.earlier && block.stack == 0);
        let sum = self.0.entry(stack).or_default();
        *sum = sum.saturating_add(block.size);
    }

    fn add_all(&mut self, blocks: &[Block]) {
        blocks.iter().for_each(|block| self.add(block));
    }

    fn in_order(self) -> Vec<(Stack, u64)> {
        let mut all: Vec<(Stack, u64)> = self.0.into_iter().collect();
        all.retain(|(_, bytes)| *bytes > 0);
        all.sort_unstable_by_key(|(stack, bytes)| (std::cmp::Reverse(*bytes), *stack));
        all
    }
}

struct Total {
    sums: Sums,
}

impl Visitor for Total {
    fn allocated(&mut self, block: &Block) {
        self.sums.add(block);
    }

    fn freed_unseen(&mut self, block: &Block, _: &Record) {
        self.sums.add(block);
    }

    fn never_freed(&mut self, rest: &Block) {
        self.sums.add(rest);
    }
}

struct Temporary<'a> {
    iterations: Option<&'a Iterations>,
    thread: Option<u32>,
    /// The numbers of the ranges that are open; the outermost is the run.
    ranges: Vec<u64>,
    begun: u64,
    /// The innermost range when a block was allocated.
    born: FxHashMap<u64, u64>,
    sums: Sums,
}

impl Visitor for Temporary<'_> {
    fn event(&mut self, record: &Record) {
        if self.thread != Some(record.event.thread) {
            return;
        }
        match record.event.kind {
            Kind::RangePush => {
                self.begun += 1;
                self.ranges.push(self.begun);
            }
            Kind::RangePop if self.ranges.len() > 1 => drop(self.ranges.pop()),
            _ => {}
        }
    }

    fn allocated(&mut self, block: &Block) {
        let range = self.ranges.last().copied().unwrap_or(0);
        self.born.insert(block.address, range);
    }

    fn freed(&mut self, block: &Block, at: &Record) {
        let range = self.born.remove(&block.address);
        let is_temporary = match self.iterations {
            Some(iterations) => {
                let of = iterations.of(block.ticket);
                of.is_some() && of == iterations.of(at.ticket)
            }
            // Numbers only grow: those that are open are in order.
            None => {
                range.is_some_and(|range| range > 0 && self.ranges.binary_search(&range).is_ok())
            }
        };
        if is_temporary {
            self.sums.add(block);
        }
    }
}

#[cfg(test)]
mod tests;

//! Blocks of memory: visible blocks exactly, the rest in sums.

use rustc_hash::FxHashMap;

use super::keep::Keep;
use super::pack::Pack;
use crate::error::Result;

/// The end of a block that is live at the end.
pub const LIVE: u64 = u64::MAX;
/// Most sums that are kept. Their stretches of time get longer until this number is enough.
const SUMS_MOST: usize = 200_000;
/// Stretches at first and at the least.
const STRETCHES: u64 = 1024;
const STRETCHES_LEAST: u64 = 16;

/// One block of memory in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Time of the allocation, ns.
    pub from: u64,
    /// Time of the free, ns, or [`LIVE`].
    pub to: u64,
    /// Address of the first byte.
    pub address: u64,
    /// Requested size in bytes.
    pub size: u64,
    /// Number of the stack in the page.
    pub stack: u32,
    /// Number of the view that the block belongs to.
    pub view: u8,
}

/// Blocks of one stack that came and went in one stretch of time, in sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Blocks allocated in it, and their bytes.
    pub allocated: (u64, u64),
    /// Blocks freed in it, and their bytes.
    pub freed: (u64, u64),
}

/// All blocks of a recording.
pub struct Blocks {
    keep: Keep<Block>,
    sums: Sums,
    end_ns: u64,
    /// Moments at which all live blocks must be exact, by view.
    moments: FxHashMap<u8, u64>,
    /// Blocks, and bytes × ns of all.
    all: (u64, f64),
}

/// Sums by view, stack and stretch.
struct Sums {
    by: FxHashMap<(u8, u32, u16), Sum>,
    stretches: u64,
    width_ns: u64,
}

impl Blocks {
    /// Begins for a run that ends at `end_ns`. Keeps at most `most` blocks exactly.
    pub fn new(end_ns: u64, most: usize) -> Blocks {
        Blocks {
            keep: Keep::new(most),
            sums: Sums {
                by: FxHashMap::default(),
                stretches: STRETCHES,
                width_ns: end_ns / STRETCHES + 1,
            },
            end_ns,
            moments: FxHashMap::default(),
            all: (0, 0.0),
        }
    }

    /// All that is live at this moment is to be kept exactly, if there is room.
    pub fn pin(&mut self, view: u8, ns: u64) {
        self.moments.insert(view, ns);
    }

    /// Takes a block once its end is known.
    ///
    /// Blocks with the largest visible area are kept. The area is that of the block in a picture of
    /// time by address. The picture is 2,000 points wide, and nothing in it is narrower than one
    /// point. The largest blocks stay even if they were short, and long-lived blocks even if they
    /// are small.
    pub fn give(&mut self, block: Block) {
        let to = block.to.min(self.end_ns);
        let lived = to.saturating_sub(block.from);
        self.all.0 += 1;
        self.all.1 += block.size as f64 * lived as f64;
        let pinned = self.moments.get(&block.view);
        let is_pinned = block.to == LIVE
            || pinned.is_some_and(|moment| block.from <= *moment && *moment < block.to);
        let seen = lived.max(self.end_ns / 2000).max(1);
        let area = u128::from(block.size.max(1)) * u128::from(seen);
        let score = u64::try_from(area >> 8).unwrap_or(u64::MAX) >> 1;
        let score = if is_pinned { score | 1 << 63 } else { score };
        let sums = &mut self.sums;
        self.keep.give(score, block, |block| sums.add(&block));
    }

    /// Puts all of it into the payload.
    pub fn pack(self, pack: &mut Pack) -> Result<()> {
        let mut sums = self.sums;
        let mut exact = self.keep.finish(|block| sums.add(&block));
        exact.sort_unstable_by_key(|block| (block.view, block.from, block.address));
        let lived = |block: &Block| block.to.min(self.end_ns).saturating_sub(block.from);
        let area: f64 = exact
            .iter()
            .map(|block| block.size as f64 * lived(block) as f64)
            .sum();
        pack.head("blocks_all", &self.all.0)?;
        pack.head("blocks_exact", &exact.len())?;
        let share = if self.all.1 > 0.0 {
            area / self.all.1
        } else {
            1.0
        };
        pack.head("blocks_share", &share)?;
        pack.head("sum_ns", &sums.width_ns)?;
        pack.plain("block_view", exact.iter().map(|block| block.view.into()));
        pack.delta("block_from", exact.iter().map(|block| block.from));
        // Lifetime and one more; 0 stands for no end.
        let life = |block: &Block| match block.to {
            LIVE => 0,
            to => to.saturating_sub(block.from) + 1,
        };
        pack.plain("block_life", exact.iter().map(life));
        pack.delta("block_address", exact.iter().map(|block| block.address));
        let mut sizes: Vec<u64> = exact.iter().map(|block| block.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let size = |block: &Block| sizes.binary_search(&block.size).unwrap_or(0) as u64;
        pack.plain("block_size", exact.iter().map(size));
        pack.delta("sizes", sizes.iter().copied());
        pack.plain("block_stack", exact.iter().map(|block| block.stack.into()));
        sums.pack(pack);
        Ok(())
    }
}

impl Sums {
    fn add(&mut self, block: &Block) {
        let allocated = self.at(block, block.from);
        allocated.allocated.0 += 1;
        allocated.allocated.1 = allocated.allocated.1.saturating_add(block.size);
        if block.to != LIVE {
            let freed = self.at(block, block.to);
            freed.freed.0 += 1;
            freed.freed.1 = freed.freed.1.saturating_add(block.size);
        }
        if self.by.len() > SUMS_MOST && self.stretches > STRETCHES_LEAST {
            self.halve();
        }
    }

    fn at(&mut self, block: &Block, ns: u64) -> &mut Sum {
        let stretch = (ns / self.width_ns).min(self.stretches - 1) as u16;
        self.by
            .entry((block.view, block.stack, stretch))
            .or_default()
    }

    /// Makes each two stretches one.
    fn halve(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        self.stretches /= 2;
        for ((view, stack, stretch), sum) in std::mem::take(&mut self.by) {
            let into = self.by.entry((view, stack, stretch / 2)).or_default();
            for (into, sum) in [
                (&mut into.allocated, sum.allocated),
                (&mut into.freed, sum.freed),
            ] {
                into.0 += sum.0;
                into.1 = into.1.saturating_add(sum.1);
            }
        }
    }

    fn pack(self, pack: &mut Pack) {
        let mut all: Vec<_> = self.by.into_iter().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        pack.plain("sum_view", all.iter().map(|((view, ..), _)| (*view).into()));
        pack.delta("sum_stack", all.iter().map(|((_, of, _), _)| (*of).into()));
        pack.delta("sum_stretch", all.iter().map(|((.., at), _)| (*at).into()));
        pack.plain("sum_count", all.iter().map(|(_, sum)| sum.allocated.0));
        pack.plain("sum_bytes", all.iter().map(|(_, sum)| sum.allocated.1));
        pack.plain("sum_freed_count", all.iter().map(|(_, sum)| sum.freed.0));
        pack.plain("sum_freed_bytes", all.iter().map(|(_, sum)| sum.freed.1));
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::unpack::unpack;
    use super::*;

    /// More stacks and stretches than there is room for: nothing is lost, and the room is kept.
    #[test]
    fn sums_get_coarser_and_stay_right() {
        let mut blocks = Blocks::new(1 << 30, 10);
        blocks.pin(0, 1 << 29);
        let (mut count, mut bytes) = (0, 0);
        for number in 0..400_000u64 {
            let from = number * 2654;
            let block = Block {
                from,
                to: from + 700,
                address: number << 9,
                size: 512 + number % 7,
                stack: (number % 401) as u32,
                view: 0,
            };
            count += 1;
            bytes += block.size;
            blocks.give(block);
        }
        let mut pack = Pack::default();
        blocks.pack(&mut pack).unwrap();
        let mut out = Vec::new();
        pack.write(&mut out).unwrap();
        let (head, columns) = unpack(std::str::from_utf8(&out).unwrap());
        assert_eq!(head["blocks_all"], count);
        assert_eq!(head["blocks_exact"], 10);
        assert!(columns["sum_stack"].len() <= SUMS_MOST);
        let sum = |name: &str| columns[name].iter().sum::<u64>();
        let exact: u64 = columns["block_size"]
            .iter()
            .map(|size| columns["sizes"][*size as usize])
            .sum();
        assert_eq!(sum("sum_count") + 10, count);
        assert_eq!(sum("sum_freed_count") + 10, count);
        assert_eq!(sum("sum_bytes") + exact, bytes);
        assert_eq!(sum("sum_freed_bytes"), sum("sum_bytes"));
    }
}

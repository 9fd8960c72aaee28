//! The segments of a device at the end, cut into blocks.

use crate::error::Result;
use crate::export::memory_viz::{End, Viz};
use crate::export::pickler::Value::{Again, Number, Numbers, Text, Truth};
use crate::ledger::Block;

/// PyTorch's blocks are multiples of this.
const ROUNDING: u64 = 512;
/// From this size on PyTorch calls a segment large (`kSmallBuffer` of its caching allocator).
const LARGE: u64 = (2 << 20) + 1;

/// A stretch of a segment: address, bytes, and the block that is there.
type Stretch<'a> = (u64, u64, Option<&'a Block>);

/// Cuts a segment into its blocks and the free parts between them.
fn stretches<'a>(from: u64, to: u64, blocks: &[&'a Block]) -> Vec<Stretch<'a>> {
    let mut all = Vec::new();
    let mut at = from;
    for (place, block) in blocks.iter().enumerate() {
        let next = blocks.get(place + 1).map_or(to, |next| next.address);
        if block.address > at {
            all.push((at, block.address - at, None));
        }
        let size = block.size.max(1).checked_next_multiple_of(ROUNDING);
        let size = size.unwrap_or(block.size).min(next - block.address);
        all.push((block.address, size, Some(*block)));
        at = block.address.saturating_add(size);
    }
    if to > at {
        all.push((at, to - at, None));
    }
    all
}

impl Viz<'_> {
    /// The segments that a device holds at the end, with their blocks.
    pub(super) fn segments(&mut self, end: &End) -> Result<()> {
        let mut blocks = end.blocks.iter().peekable();
        let mut covered = 0;
        for (address, (size, stream)) in &end.segments {
            let to = address.saturating_add(*size);
            // Blocks before the segment are in no segment.
            while let Some(block) = blocks.next_if(|(block, _)| block.address < *address) {
                covered = self.alone(end, block, covered)?;
            }
            let mut inside = Vec::new();
            while let Some((block, _)) = blocks.next_if(|(block, _)| block.address < to) {
                inside.push(block);
            }
            let from = (*address).max(covered);
            if to > from {
                inside.retain(|block| block.address >= from);
                self.segment(end, (from, to), *stream, &inside)?;
                covered = to;
            }
        }
        for block in blocks {
            covered = self.alone(end, block, covered)?;
        }
        Ok(())
    }

    /// Writes a block without a segment as a segment of its own, unless it begins in memory shown
    /// already.
    fn alone(&mut self, end: &End, (block, stream): &(Block, u64), covered: u64) -> Result<u64> {
        let size = block.size.max(1).checked_next_multiple_of(ROUNDING);
        let to = block.address.saturating_add(size.unwrap_or(block.size));
        if block.address < covered || to <= block.address {
            return Ok(covered);
        }
        self.segment(end, (block.address, to), *stream, &[block])?;
        Ok(to)
    }

    fn segment(
        &mut self,
        end: &End,
        (from, to): (u64, u64),
        stream: u64,
        blocks: &[&Block],
    ) -> Result<()> {
        let stretches = stretches(from, to, blocks);
        let held = stretches.iter().filter(|(.., block)| block.is_some());
        let allocated: u64 = held.map(|(_, size, _)| size).sum();
        let requested = blocks
            .iter()
            .map(|block| block.size)
            .fold(0, u64::saturating_add);
        let kind = if to - from >= LARGE { "large" } else { "small" };
        self.pickle.begin_dict()?;
        self.pickle.fields(&[
            ("device", Number(end.device)),
            ("address", Number(from)),
            ("total_size", Number(to - from)),
            ("allocated_size", Number(allocated)),
            ("active_size", Number(allocated)),
            ("requested_size", Number(requested)),
            ("stream", Number(stream)),
            ("segment_type", Text(kind)),
            ("is_expandable", Truth(false)),
            ("segment_pool_id", Numbers(&[0, 0])),
            ("frames", Numbers(&[])),
        ])?;
        self.pickle.text("blocks")?;
        self.pickle.begin_list()?;
        for (address, size, block) in stretches {
            self.block(end, address, size, block)?;
        }
        self.pickle.end_list()?;
        self.pickle.end_dict()?;
        Ok(())
    }

    fn block(&mut self, end: &End, address: u64, size: u64, block: Option<&Block>) -> Result<()> {
        let state = match block {
            Some(_) => "active_allocated",
            None => "inactive",
        };
        let frames = block.and_then(|block| end.stacks.get(&block.stack));
        self.pickle.begin_dict()?;
        self.pickle.fields(&[
            ("address", Number(address)),
            ("size", Number(size)),
            (
                "requested_size",
                Number(block.map_or(0, |block| block.size)),
            ),
            ("state", Text(state)),
            ("frames", frames.map_or(Numbers(&[]), |place| Again(*place))),
        ])?;
        self.pickle.end_dict()?;
        Ok(())
    }
}

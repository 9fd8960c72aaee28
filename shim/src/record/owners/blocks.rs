//! The live blocks whose owners a walk looks for.

use gpushim_trace::{Class, Event, Layer, Writer};

/// Live blocks of device memory, by address. Memory that contains tensors of a framework is
/// represented by the tensors.
pub struct Blocks {
    all: Vec<Event>,
}

impl Blocks {
    /// Reads the trace's table of live blocks.
    pub fn of(writer: &Writer) -> Blocks {
        let (mut tensors, mut others) = (Vec::new(), Vec::new());
        writer.each_live(|event| {
            if event.size == 0 {
                return;
            }
            match event.class {
                Class::Tensor => tensors.push(*event),
                Class::Device | Class::Pitched | Class::PoolAsync | Class::Managed => {
                    others.push(*event);
                }
                _ => {}
            }
        });
        tensors.sort_unstable_by_key(|block| block.address);
        let has_tensor = |block: &Event| {
            let at = tensors.partition_point(|tensor| tensor.address < block.address);
            let end = block.address.saturating_add(block.size);
            tensors.get(at).is_some_and(|tensor| tensor.address < end)
        };
        others.retain(|block| !has_tensor(block));
        let mut all = tensors;
        all.append(&mut others);
        all.sort_unstable_by_key(|block| block.address);
        // Two blocks may overlap if one was freed and another allocated during the reading.
        let mut end = 0;
        all.retain(|block| {
            let is_apart = block.address >= end;
            if is_apart {
                end = block.address.saturating_add(block.size);
            }
            is_apart
        });
        Blocks { all }
    }

    /// True if there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the begin and the end of each block, by address.
    pub fn bounds(&self) -> Vec<u64> {
        let bounds = |block: &Event| [block.address, block.address.saturating_add(block.size)];
        self.all.iter().flat_map(bounds).collect()
    }

    /// Returns the block that contains an address.
    pub fn with(&self, address: u64) -> Option<&Event> {
        let after = self.all.partition_point(|block| block.address <= address);
        let block = self.all.get(after.checked_sub(1)?)?;
        (address < block.address.saturating_add(block.size)).then_some(block)
    }
}

/// Returns the sum of live bytes: of tensors, if a framework announces them.
pub fn live(writer: &Writer) -> u64 {
    let sum = |layer| writer.live_bytes(layer).iter().sum::<u64>();
    match sum(Layer::Tensor) {
        0 => sum(Layer::Device),
        tensors => tensors,
    }
}

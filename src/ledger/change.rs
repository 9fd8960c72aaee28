//! What an event changed, and what that does to each sum.

use super::block::{Block, Segment};
use gpushim_trace::{Event, Layer};

/// What an event changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A block is older than the first event that can be read, and its allocation is known otherwise.
    WasThere(Block),
    /// A block begins to live.
    Allocated(Block),
    /// A block ends: it was freed, went with its context, or its address was given to another.
    Freed(Block),
    /// A block was freed whose allocation cannot be read: it was there before the first event.
    FreedUnseen(Block),
    /// A pool took a segment.
    Reserved(Segment),
    /// A segment went back, or with its context.
    Released(Segment),
    /// A segment went back that was there before the first event.
    ReleasedUnseen(Segment),
    /// A context ended whose blocks cannot be distinguished from those of others: the blocks stay live, the sums fall.
    Ambiguous {
        /// Device ordinal.
        device: u8,
        /// Bytes that were asked for, by the share of what was handed out.
        requested: u64,
        /// Bytes that were handed out.
        allocated: u64,
    },
    /// A framework said what it has handed out and holds.
    Framework {
        /// Device ordinal.
        device: u8,
        /// Bytes handed out.
        allocated: u64,
        /// Bytes held.
        reserved: u64,
    },
    /// The driver's figure of the bytes of a device in use by all processes.
    InUse {
        /// Device ordinal.
        device: u8,
        /// Bytes.
        bytes: u64,
    },
}

/// A sum that changes with events, of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sum {
    /// Bytes asked for of the live blocks of a layer.
    Live(Layer),
    /// Bytes handed out of a device, rounded to blocks.
    Allocated,
    /// Bytes held from the driver.
    Reserved,
    /// What a framework says that it has handed out.
    FrameworkAllocated,
    /// What a framework says that it holds.
    FrameworkReserved,
    /// What the driver says is in use, by all processes.
    InUse,
}

/// What happens to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was this much higher all the time, before the first event too.
    WasThere,
    /// It rises by so much.
    Rise,
    /// It falls by so much.
    Fall,
    /// It falls by what was there before the first event.
    FallUnseen,
    /// It becomes so much.
    Set,
}

impl Change {
    /// The device that it is of.
    pub fn device(&self) -> u8 {
        match self {
            Change::WasThere(block)
            | Change::Allocated(block)
            | Change::Freed(block)
            | Change::FreedUnseen(block) => block.device,
            Change::Reserved(one) | Change::Released(one) | Change::ReleasedUnseen(one) => {
                one.device
            }
            Change::Ambiguous { device, .. }
            | Change::Framework { device, .. }
            | Change::InUse { device, .. } => *device,
        }
    }

    /// Tells what it does to the sums: the device, the sum, what happens to it, and bytes.
    pub fn steps(&self, mut tell: impl FnMut(u8, Sum, Step, u64)) {
        match self {
            Change::WasThere(block) => of_block(block, Step::WasThere, &mut tell),
            Change::Allocated(block) => of_block(block, Step::Rise, &mut tell),
            Change::Freed(block) => of_block(block, Step::Fall, &mut tell),
            Change::FreedUnseen(block) => of_block(block, Step::FallUnseen, &mut tell),
            Change::Reserved(one) => tell(one.device, Sum::Reserved, Step::Rise, one.size),
            Change::Released(one) => tell(one.device, Sum::Reserved, Step::Fall, one.size),
            Change::ReleasedUnseen(one) => {
                tell(one.device, Sum::Reserved, Step::FallUnseen, one.size);
            }
            Change::Ambiguous {
                device,
                requested,
                allocated,
            } if *device != Event::NO_DEVICE => {
                tell(*device, Sum::Live(Layer::Device), Step::Fall, *requested);
                tell(*device, Sum::Allocated, Step::Fall, *allocated);
            }
            // The device is unknown.
            Change::Ambiguous { .. } => {}
            Change::Framework {
                device,
                allocated,
                reserved,
            } => {
                tell(*device, Sum::FrameworkAllocated, Step::Set, *allocated);
                tell(*device, Sum::FrameworkReserved, Step::Set, *reserved);
            }
            Change::InUse { device, bytes } => tell(*device, Sum::InUse, Step::Set, *bytes),
        }
    }
}

fn of_block(block: &Block, step: Step, tell: &mut impl FnMut(u8, Sum, Step, u64)) {
    let (bytes, device) = (block.bytes(), block.device);
    tell(device, Sum::Live(bytes.layer), step, bytes.requested);
    if bytes.layer == Layer::Device {
        tell(device, Sum::Allocated, step, bytes.allocated);
        if bytes.reserved > 0 {
            tell(device, Sum::Reserved, step, bytes.reserved);
        }
    }
}

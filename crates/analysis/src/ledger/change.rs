//! Changes that an event makes to blocks, segments and sums.

use super::block::{Block, Segment};
use gpushim_trace::{Event, Layer};

/// A change that an event makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A block is older than the first readable event, and its allocation is known otherwise.
    WasThere(Block),
    /// A block was allocated by this event.
    Allocated(Block),
    /// A block ended: it was freed, its context was destroyed, or its address was allocated again.
    Freed(Block),
    /// A block was freed whose allocation cannot be read: it was there before the first event.
    FreedUnseen(Block),
    /// A pool reserved a segment.
    Reserved(Segment),
    /// A segment was released, by itself or with its context.
    Released(Segment),
    /// A segment was released that was there before the first event.
    ReleasedUnseen(Segment),
    /// A context was destroyed whose blocks cannot be distinguished from others: the blocks stay
    /// live, the sums fall.
    Ambiguous {
        /// Ordinal of the device in question.
        device: u8,
        /// Bytes requested, by the share of the allocated bytes.
        requested: u64,
        /// Number of bytes allocated.
        allocated: u64,
    },
    /// A framework reported its allocated and reserved bytes.
    Framework {
        /// Ordinal of the device in question.
        device: u8,
        /// Number of bytes allocated.
        allocated: u64,
        /// Number of bytes reserved.
        reserved: u64,
    },
    /// The driver's figure of the bytes of a device in use by all processes.
    InUse {
        /// Ordinal of the device in question.
        device: u8,
        /// Bytes in use by all processes.
        bytes: u64,
    },
}

/// A sum that changes with events, of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sum {
    /// Requested bytes of the live blocks of a layer.
    Live(Layer),
    /// Allocated bytes of a device, rounded to blocks.
    Allocated,
    /// Bytes reserved from the driver.
    Reserved,
    /// Allocated bytes, as a framework reports them.
    FrameworkAllocated,
    /// Reserved bytes, as a framework reports them.
    FrameworkReserved,
    /// Bytes in use by all processes, as the driver reports them.
    InUse,
}

/// Direction in which a sum changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Adds bytes that were there all the time, before the first event too.
    WasThere,
    /// Raises the sum by this many bytes.
    Rise,
    /// Lowers the sum by this many bytes.
    Fall,
    /// Lowers the sum by bytes that were there before the first event.
    FallUnseen,
    /// Sets the sum to this many bytes.
    Set,
}

impl Change {
    /// Returns the ordinal of its device.
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

    /// Calls `tell` with each step of the sums: the device, the sum, the direction, and bytes.
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

//! Blocks, segments, and the part of memory that is examined.

use gpushim_recording::Recording;
use gpushim_trace::{Bytes, Class, Event, Layer, Record};

/// The memory that is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Focus {
    /// The layer: a framework's tensors, or memory of the devices.
    pub layer: Layer,
    /// The only device to examine.
    pub device: Option<u8>,
}

impl Focus {
    /// Examines a framework's tensors if the recording has any, else memory of the devices. The
    /// memory below tensors cannot distinguish them.
    pub fn of(recording: &dyn Recording, device: Option<u8>) -> Focus {
        Focus {
            layer: if recording.has_tensors() {
                Layer::Tensor
            } else {
                Layer::Device
            },
            device,
        }
    }

    /// Returns true if an event is about this memory.
    pub fn holds(self, event: &Event) -> bool {
        event.class.layer() == self.layer && is_on(self.device, event.device)
    }
}

/// Returns true if a device is the examined one, or unknown.
pub(super) fn is_on(asked: Option<u8>, device: u8) -> bool {
    asked.is_none_or(|asked| device == asked || device == Event::NO_DEVICE)
}

/// A block or tensor that is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Time of its allocation, ns since the start.
    pub ns: u64,
    /// The place of its allocation among all events, 0 if that can no longer be read.
    pub ticket: u64,
    /// Number of bytes requested.
    pub size: u64,
    /// Bytes that it takes up, with the rounding; of tensors at least this many.
    pub room: u64,
    /// Address of its first byte.
    pub address: u64,
    /// Id of the stack of its allocation.
    pub stack: u32,
    /// The thread that allocated it.
    pub thread: u32,
    /// Ordinal of the block's device.
    pub device: u8,
    /// Class of the block's memory.
    pub class: Class,
    /// True if the driver served it and not the pool.
    pub forwarded: bool,
    /// True if a stream was capturing when it was allocated.
    pub captured: bool,
    /// True if it was allocated before the recording began. Its allocation cannot be read, or a
    /// snapshot lists it without one.
    pub earlier: bool,
}

impl Block {
    /// Creates the block of an allocation, at `ns` since the start of the recording.
    pub fn new(ns: u64, ticket: u64, event: &Event) -> Block {
        Block {
            ns,
            ticket,
            size: event.size,
            room: room(event),
            address: event.address,
            stack: event.stack,
            thread: event.thread,
            device: event.device,
            class: event.class,
            forwarded: event.flags & gpushim_trace::flags::FORWARDED != 0,
            captured: event.flags & gpushim_trace::flags::CAPTURE != 0,
            earlier: event.flags & gpushim_trace::flags::EARLIER != 0,
        }
    }

    /// Returns true if other blocks are cut from it. Below a framework's tensors these are all
    /// memory of the driver, elsewhere the memory that the pool only passed on.
    pub fn is_segment(&self, is_below: bool) -> bool {
        match self.class {
            // The handle of memory that is mapped elsewhere is no address; the mapping has one.
            Class::Vmm => !is_below && self.forwarded,
            Class::VmmMap => is_below,
            class => class.layer() == Layer::Device && (is_below || self.forwarded),
        }
    }

    /// Returns the bytes that it adds to the sums.
    pub(super) fn bytes(&self) -> Bytes {
        let layer = self.class.layer();
        let is_whole = self.forwarded && layer == Layer::Device;
        Bytes {
            layer,
            requested: self.size,
            allocated: match layer {
                Layer::Tensor => self.size,
                _ => self.room,
            },
            reserved: if is_whole { self.room } else { 0 },
        }
    }
}

/// Returns the bytes that a block takes up. The `extra` words of a tensor's event are the
/// framework's, not a cost.
fn room(event: &Event) -> u64 {
    match event.class.layer() {
        Layer::Tensor => gpushim_torch::allocator::block(event.size),
        _ => Bytes::of(event).allocated,
    }
}

/// Memory that a pool took from the driver as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address of its first byte, or the handle of its memory.
    pub address: u64,
    /// Size of the segment, bytes.
    pub size: u64,
    /// Ordinal of the segment's device.
    pub device: u8,
    /// The handle of its context, 0 if it belongs to none.
    pub context: u64,
}

impl Segment {
    pub(super) fn new(record: &Record, device: u8) -> Segment {
        let event = &record.event;
        Segment {
            address: event.address,
            size: event.size,
            device,
            context: event.extra[0],
        }
    }

    pub(super) fn holds(&self, address: u64) -> bool {
        address
            .checked_sub(self.address)
            .is_some_and(|at| at < self.size)
    }
}

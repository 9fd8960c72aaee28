//! What the ledger knows: blocks and segments, and which of them are looked at.

use crate::recording::Recording;
use gpushim_trace::{Bytes, Class, Event, Layer, Record};

/// The memory that is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Focus {
    /// The layer: a framework's tensors, or memory of the devices.
    pub layer: Layer,
    /// Of one device only.
    pub device: Option<u8>,
}

impl Focus {
    /// A framework's tensors where the recording has any, which the memory below them cannot tell apart,
    /// else memory of the devices.
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

    /// Whether an event is about it.
    pub fn holds(self, event: &Event) -> bool {
        event.class.layer() == self.layer && is_on(self.device, event.device)
    }
}

/// Whether what is of a device, or of an unknown one, is of the device that is asked for.
pub(super) fn is_on(asked: Option<u8>, device: u8) -> bool {
    asked.is_none_or(|asked| device == asked || device == Event::NO_DEVICE)
}

/// A block or tensor that is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// When it was allocated, ns since the start.
    pub ns: u64,
    /// The place of its allocation among all events, 0 if that can no longer be read.
    pub ticket: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes that it takes up, with what it was rounded up by; of tensors at least this many.
    pub room: u64,
    /// Its address.
    pub address: u64,
    /// Id of the stack of its allocation.
    pub stack: u32,
    /// The thread that allocated it.
    pub thread: u32,
    /// Device ordinal.
    pub device: u8,
    /// What sort of memory it is.
    pub class: Class,
    /// It came from the driver and not from the pool.
    pub forwarded: bool,
    /// A stream captured when it was made.
    pub captured: bool,
    /// It was made before the recording began: its allocation cannot be read, or a snapshot tells only that it was
    /// there.
    pub earlier: bool,
}

impl Block {
    pub(crate) fn new(ns: u64, ticket: u64, event: &Event) -> Block {
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

    /// Whether it is memory that other blocks are cut from: below a framework's tensors all memory of the driver,
    /// elsewhere what the pool only handed on.
    pub(crate) fn is_segment(&self, is_below: bool) -> bool {
        match self.class {
            // The handle of what is mapped elsewhere is no address; the mapping is.
            Class::Vmm => !is_below && self.forwarded,
            Class::VmmMap => is_below,
            class => class.layer() == Layer::Device && (is_below || self.forwarded),
        }
    }

    /// What it counts in the sums.
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

/// Tensors begin at multiples of this many bytes (`kMinBlockSize` of PyTorch's caching allocator).
const TENSOR_STEP: u64 = 512;

/// Bytes that a block takes up. The words of a tensor's event are the framework's, not a cost.
fn room(event: &Event) -> u64 {
    match event.class.layer() {
        Layer::Tensor => (event.size.max(1))
            .checked_next_multiple_of(TENSOR_STEP)
            .unwrap_or(event.size),
        _ => Bytes::of(event).allocated,
    }
}

/// Memory that a pool took from the driver as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins, or the handle of its memory.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Device ordinal.
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

//! Effect of one event on the sums of memory, without knowledge of any block.
//!
//! The timeline of a running process applies it unchanged. The command's ledger (`crates/analysis`) also
//! knows the blocks. So it knows if a free has an allocation, and the blocks that end with a
//! context. It takes the bytes of each event from this module.
//!
//! - Sums are those of a layer ([`Class::layer`](super::Class::layer)), never across layers. Only
//!   memory of a device is *allocated* and *reserved*. For other layers only the requested bytes
//!   count.
//! - *Allocated* is the size of the block after rounding, at least the requested size. The words of
//!   a tensor's event are the framework's own sums, not a cost.
//! - *Reserved* are the segments of gpushim's pools, and blocks handed out by the driver itself
//!   ([`flags::FORWARDED`]).
//! - A failed call (`result` other than 0) changes nothing.
//! - The end of a context subtracts its blocks, and its segments without a [`Kind::Release`].

use super::event::{Event, Layer, flags};
use super::kind::Kind;

/// Effect of an event on the sums of memory.
///
/// ```
/// use gpushim_trace::{Class, Cost, Effect, Event, Kind, flags};
///
/// let extra = [0, Cost::pack(0, 1024)];
/// let alloc = Event { size: 1000, extra, ..Event::new(Kind::Alloc, Class::Device) };
/// let Effect::Allocated(bytes) = Effect::of(&alloc) else { panic!("not an allocation") };
/// assert_eq!((bytes.requested, bytes.allocated, bytes.reserved), (1000, 1024, 0));
///
/// // Without a pool the driver's block is reserved, too; a call that failed changes nothing.
/// let forwarded = Event { flags: flags::FORWARDED, ..alloc };
/// assert!(matches!(Effect::of(&forwarded), Effect::Allocated(bytes) if bytes.reserved == 1024));
/// assert_eq!(Effect::of(&Event { result: 2, ..alloc }), Effect::None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The event changes no sum.
    None,
    /// The program allocated a block.
    Allocated(Bytes),
    /// The program freed a block.
    Freed(Bytes),
    /// A pool took a segment of this many bytes from the driver.
    Reserved(u64),
    /// A pool returned a segment of this many bytes to the driver.
    Released(u64),
    /// A context ended, and with it blocks and segments of these sizes.
    ContextGone {
        /// Bytes of the segments without a release of their own.
        allocated: u64,
        /// Bytes of its segments that had no release of their own.
        reserved: u64,
    },
    /// The driver reported the bytes of a device in use by all processes.
    InUse(u64),
}

/// Bytes of a block, by the sums that count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The layer that counts them.
    pub layer: Layer,
    /// Bytes that the program asked for.
    pub requested: u64,
    /// Bytes handed out, rounded to blocks.
    pub allocated: u64,
    /// Bytes reserved from the driver, 0 for a block of a pool's segment.
    pub reserved: u64,
}

impl Effect {
    /// Returns the effect of an event.
    pub fn of(event: &Event) -> Effect {
        if event.result != 0 {
            return Effect::None;
        }
        match event.kind {
            Kind::Alloc | Kind::TensorAlloc => Effect::Allocated(Bytes::of(event)),
            Kind::Free | Kind::TensorFree => Effect::Freed(Bytes::of(event)),
            Kind::Reserve => Effect::Reserved(event.size),
            Kind::Release => Effect::Released(event.size),
            Kind::ContextGone => Effect::ContextGone {
                allocated: event.size,
                reserved: event.extra[0],
            },
            Kind::DeviceMemory => Effect::InUse(event.size),
            _ => Effect::None,
        }
    }
}

impl Bytes {
    /// Returns the bytes of an allocation or a free.
    pub fn of(event: &Event) -> Bytes {
        let layer = event.class.layer();
        let allocated = match layer {
            Layer::Tensor => event.size,
            _ => event.cost().block.max(event.size),
        };
        let is_whole = layer == Layer::Device && event.flags & flags::FORWARDED != 0;
        Bytes {
            layer,
            requested: event.size,
            allocated,
            reserved: if is_whole { allocated } else { 0 },
        }
    }
}

impl Event {
    /// Returns the framework's allocated and reserved bytes, if the event carries them.
    pub fn framework(&self) -> Option<[u64; 2]> {
        let is_said = matches!(
            self.kind,
            Kind::TensorAlloc | Kind::TensorFree | Kind::TensorOutOfMemory
        );
        is_said.then_some(self.extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Class, Cost};

    fn alloc(class: Class, size: u64, block: u64, flags: u16) -> Event {
        Event {
            size,
            flags,
            extra: [0, Cost::pack(0, block)],
            ..Event::new(Kind::Alloc, class)
        }
    }

    #[test]
    fn only_device_memory_of_the_driver_is_reserved() {
        let of = |class, flags| Bytes::of(&alloc(class, 100, 512, flags));
        for (class, flags, reserved) in [
            (Class::Device, flags::HIT, 0),
            (Class::Device, flags::FORWARDED, 512),
            (Class::Vmm, flags::FORWARDED, 512),
            (Class::VmmMap, flags::FORWARDED, 0),
            (Class::Host, flags::FORWARDED, 0),
            (Class::Managed, flags::FORWARDED, 0),
        ] {
            let bytes = of(class, flags);
            assert_eq!(
                (bytes.requested, bytes.allocated, bytes.reserved),
                (100, 512, reserved)
            );
            assert_eq!(bytes.layer, class.layer());
        }
    }

    #[test]
    fn words_of_tensors_are_no_cost_and_failures_nothing() {
        let tensor = Event {
            extra: [7, 9],
            size: 3,
            ..Event::new(Kind::TensorAlloc, Class::Tensor)
        };
        assert_eq!(Bytes::of(&tensor).allocated, 3);
        assert_eq!(tensor.framework(), Some([7, 9]));
        let failed = Event {
            result: 2,
            ..alloc(Class::Device, 1, 1, 0)
        };
        assert_eq!(
            (Effect::of(&failed), failed.framework()),
            (Effect::None, None)
        );
    }
}

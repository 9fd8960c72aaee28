//! Events: the fields of a record, and the words packed in them.

use crate::kind::Kind;

/// Class of the memory that an event is about, by the call that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// `cuMemAlloc`: memory of a device.
    Device = 0,
    /// `cuMemAllocManaged`: managed memory.
    Managed = 1,
    /// `cuMemAllocPitch`: rows with a pitch.
    Pitched = 2,
    /// `cuArrayCreate`, `cuArray3DCreate`.
    Array = 3,
    /// `cuMipmappedArrayCreate`.
    MipmappedArray = 4,
    /// `cuMemHostAlloc`, `cuMemAllocHost`: pinned host memory.
    Host = 5,
    /// `cuMemHostRegister`: host memory pinned later.
    Registered = 6,
    /// `cuMemCreate`: physical memory.
    Vmm = 7,
    /// `cuMemMap`: an address for physical memory.
    VmmMap = 8,
    /// `cuMemAllocAsync`, `cuMemAllocFromPoolAsync`: stream-ordered.
    PoolAsync = 9,
    /// A memory node of a graph.
    GraphNode = 10,
    /// `cuIpcOpenMemHandle`: memory of another process.
    Ipc = 11,
    /// `cuImportExternalMemory`: memory of another API.
    External = 12,
    /// Tensor made by a framework.
    Tensor = 13,
    /// A class that this version does not know; only ever read, never written.
    Unknown = 255,
}

/// Layer that accounts for the memory of a class. Sums are taken within a layer, never across.
///
/// ```
/// use gpushim_trace::{Class, Layer};
///
/// assert_eq!(Class::PoolAsync.layer(), Layer::Device);
/// assert_eq!(Class::Registered.layer(), Layer::Host);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Layer {
    /// Memory that a framework hands out from memory it holds.
    Tensor = 0,
    /// Memory of a device, handed to the program or a framework.
    Device = 1,
    /// Memory that moves between host and device.
    Managed = 2,
    /// Pinned memory of the host.
    Host = 3,
    /// Another address for memory that is counted elsewhere, in this process or another.
    Mapping = 4,
}

impl Class {
    /// Every class that is written, in the order of their numbers, which start at 0.
    pub const ALL: [Class; 14] = [
        Class::Device,
        Class::Managed,
        Class::Pitched,
        Class::Array,
        Class::MipmappedArray,
        Class::Host,
        Class::Registered,
        Class::Vmm,
        Class::VmmMap,
        Class::PoolAsync,
        Class::GraphNode,
        Class::Ipc,
        Class::External,
        Class::Tensor,
    ];

    /// The class of a number in a file.
    pub fn from_number(number: u8) -> Class {
        Class::ALL
            .get(usize::from(number))
            .copied()
            .unwrap_or(Class::Unknown)
    }

    /// The name used for people and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Device => "device",
            Class::Managed => "managed",
            Class::Pitched => "pitched",
            Class::Array => "array",
            Class::MipmappedArray => "mipmapped-array",
            Class::Host => "host",
            Class::Registered => "registered",
            Class::Vmm => "vmm",
            Class::VmmMap => "vmm-map",
            Class::PoolAsync => "pool-async",
            Class::GraphNode => "graph-node",
            Class::Ipc => "ipc",
            Class::External => "external",
            Class::Tensor => "tensor",
            Class::Unknown => "unknown",
        }
    }

    /// The layer that counts this class.
    pub const fn layer(self) -> Layer {
        match self {
            Class::Tensor => Layer::Tensor,
            Class::Managed => Layer::Managed,
            Class::Host | Class::Registered => Layer::Host,
            Class::VmmMap | Class::Ipc | Class::External | Class::Unknown => Layer::Mapping,
            Class::Device
            | Class::Pitched
            | Class::Array
            | Class::MipmappedArray
            | Class::Vmm
            | Class::PoolAsync
            | Class::GraphNode => Layer::Device,
        }
    }
}

/// Bits of [`Event::flags`]: origin and state of an allocation.
pub mod flags {
    /// A block whose earlier work was known to be complete, or ordered before the request.
    pub const HIT: u16 = 1 << 0;
    /// A block ordered after its earlier work on the device.
    pub const ORDERED: u16 = 1 << 1;
    /// A block whose earlier work the host waited for.
    pub const WAITED: u16 = 1 << 2;
    /// Memory that the pool got from the driver, or moved, for this call.
    pub const GROWN: u16 = 1 << 3;
    /// The call went to the driver as it was.
    pub const FORWARDED: u16 = 1 << 4;
    /// A stream was capturing during the call.
    pub const CAPTURE: u16 = 1 << 5;
    /// Not an event, but an allocation from before the recording began. Only in recordings of other
    /// programs.
    pub const EARLIER: u16 = 1 << 6;
    /// A free of memory that went with its context.
    pub const ENDED: u16 = 1 << 7;

    /// The bits by name, in order.
    pub const NAMES: [(u16, &str); 8] = [
        (HIT, "hit"),
        (ORDERED, "ordered"),
        (WAITED, "waited"),
        (GROWN, "grown"),
        (FORWARDED, "forwarded"),
        (CAPTURE, "capture"),
        (EARLIER, "earlier"),
        (ENDED, "ended"),
    ];
}

/// Cost of a call and size of its block, packed into `extra[1]` of allocations and frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time spent in the driver for this call, ns; saturates at 4.29 s.
    pub driver_ns: u32,
    /// Bytes of the block, in whole units of [`Cost::UNIT`].
    pub block: u64,
}

impl Cost {
    /// Blocks are counted in units of 512 bytes, the driver's own rounding, so that 32 bits reach 2
    /// TiB.
    pub const UNIT: u64 = 512;

    /// The word for a call that spent this time in the driver for a block of this many bytes.
    pub const fn pack(driver_ns: u64, block: u64) -> u64 {
        let limit = u32::MAX as u64;
        let ns = if driver_ns > limit { limit } else { driver_ns };
        let units = block.div_ceil(Cost::UNIT);
        let units = if units > limit { limit } else { units };
        ns << 32 | units
    }

    /// The inverse of [`Cost::pack`].
    pub const fn unpack(word: u64) -> Cost {
        Cost {
            driver_ns: (word >> 32) as u32,
            block: (word & 0xffff_ffff) * Cost::UNIT,
        }
    }
}

/// One event, without its ticket and time, which the writer adds.
///
/// ```
/// use gpushim_trace::{Class, Cost, Event, Kind, flags};
///
/// // cuMemAlloc of 1,000 bytes on device 0, which took 58 µs in the driver and has a block of 1,024 bytes.
/// let event = Event {
///     flags: flags::GROWN,
///     device: 0,
///     address: 0x7f00_0000_0000,
///     size: 1000,
///     extra: [0, Cost::pack(58_000, 1024)],
///     ..Event::new(Kind::Alloc, Class::Device)
/// };
/// assert_eq!(event.cost(), Cost { driver_ns: 58_000, block: 1024 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Kind of the event, by its number in a file.
    pub kind: Kind,
    /// Class of the memory that the event is about.
    pub class: Class,
    /// Combination of the bits in [`flags`].
    pub flags: u16,
    /// Device ordinal, [`Event::NO_DEVICE`] if unknown.
    pub device: u8,
    /// Number of the stream that a tensor was made for, 0 if unknown; see
    /// [`Trace::stream`](crate::Trace::stream). Frees do not have it.
    pub stream: u8,
    /// The driver's result code, 0 for success.
    pub result: i16,
    /// Thread id, as `gettid` gives it.
    pub thread: u32,
    /// Id of the call stack, 0 for none.
    pub stack: u32,
    /// Device address, or the handle that the kind names.
    pub address: u64,
    /// Size that the program asked for, in bytes.
    pub size: u64,
    /// Two words, defined by the kind.
    pub extra: [u64; 2],
}

impl Event {
    /// The device ordinal for "unknown".
    pub const NO_DEVICE: u8 = 255;

    /// The [`Event::stream`] of the default stream, whose handle is 0. Larger numbers are named by
    /// facts.
    pub const DEFAULT_STREAM: u8 = 1;

    /// An event with nothing but its kind and class, on an unknown device.
    pub const fn new(kind: Kind, class: Class) -> Event {
        Event {
            kind,
            class,
            flags: 0,
            device: Event::NO_DEVICE,
            stream: 0,
            result: 0,
            thread: 0,
            stack: 0,
            address: 0,
            size: 0,
            extra: [0; 2],
        }
    }

    /// `extra[1]` of an allocation or free.
    pub const fn cost(&self) -> Cost {
        Cost::unpack(self.extra[1])
    }

    /// The event as the words of a record after its sequence word: ticks first.
    #[inline(always)]
    pub(crate) const fn words(&self, ticks: u64) -> [u64; 7] {
        let head = self.kind as u64
            | (self.class as u64) << 8
            | (self.flags as u64) << 16
            | (self.device as u64) << 32
            | (self.stream as u64) << 40
            | (self.result as u16 as u64) << 48;
        let who = self.thread as u64 | (self.stack as u64) << 32;
        [
            ticks,
            head,
            who,
            self.address,
            self.size,
            self.extra[0],
            self.extra[1],
        ]
    }

    /// The inverse of [`Event::words`]: ticks and the event.
    pub(crate) fn from_words(words: [u64; 7]) -> (u64, Event) {
        let [ticks, head, who, address, size, first, second] = words;
        let event = Event {
            kind: Kind::from_number(head as u8),
            class: Class::from_number((head >> 8) as u8),
            flags: (head >> 16) as u16,
            device: (head >> 32) as u8,
            stream: (head >> 40) as u8,
            result: (head >> 48) as i16,
            thread: who as u32,
            stack: (who >> 32) as u32,
            address,
            size,
            extra: [first, second],
        };
        (ticks, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind as u8), kind);
        }
        for class in Class::ALL {
            assert_eq!(Class::from_number(class as u8), class);
        }
        for unused in [0, 11, 13, 14, 200] {
            assert_eq!(Kind::from_number(unused), Kind::Unknown);
        }
        assert_eq!(Class::from_number(200), Class::Unknown);
    }

    #[test]
    fn words_round_trip() {
        let event = Event {
            flags: flags::CAPTURE | 1 << 15,
            device: 7,
            stream: 0xa5,
            result: -2,
            thread: u32::MAX,
            stack: 0x8000_0001,
            address: 3,
            size: u64::MAX,
            extra: [5, 6],
            ..Event::new(Kind::TensorAlloc, Class::Tensor)
        };
        assert_eq!(Event::from_words(event.words(9)), (9, event));
        let other = Event::new(Kind::Free, Class::Ipc);
        assert_eq!(Event::from_words(other.words(0)), (0, other));
    }

    #[test]
    fn cost_saturates_and_rounds_up() {
        assert_eq!(
            Cost::unpack(Cost::pack(7, 513)),
            Cost {
                driver_ns: 7,
                block: 1024
            }
        );
        let huge = Cost::unpack(Cost::pack(u64::MAX, u64::MAX));
        assert_eq!(
            huge,
            Cost {
                driver_ns: u32::MAX,
                block: u64::from(u32::MAX) * 512
            }
        );
        assert_eq!(Cost::unpack(Cost::pack(0, 0)), Cost::default());
    }
}

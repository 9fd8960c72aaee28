//! Memory that a server's cache could have been given, too.

use serde::Serialize;

use super::find::DeviceMemory;
use super::rows::MemoryPart;
use super::sums::MemorySums;
use crate::recording::{CallSite, Function, Names};
use gpushim_trace::Event;

/// Tensors of one call site are a cache if they are at least one in this many bytes of the device.
const LEAST: u64 = 4;
/// Memory that stays free for the driver: one in this many bytes of the device, and at least
/// `MARGIN_LEAST` bytes.
const MARGIN: u64 = 100;
const MARGIN_LEAST: u64 = 256 << 20;
/// Less is not worth a line.
const WORTH: u64 = 512 << 20;

/// Memory that was free all the time beside a cache of fixed size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spare {
    /// The ordinal of the device.
    pub device: u8,
    /// Bytes that the cache could have more.
    pub bytes: u64,
    /// Bytes that stay free then.
    pub margin: u64,
    /// Bytes that the cache has.
    pub cache: u64,
    /// The function that made it.
    pub made_at: Option<Function>,
}

impl Spare {
    /// Looks at a device. `None` if it has no such cache, or no memory that was never used.
    pub fn of(memory: &MemorySums, at_end: &DeviceMemory, names: &mut dyn Names) -> Option<Spare> {
        let device = at_end.device.filter(|device| *device != Event::NO_DEVICE)?;
        let (_, of) = memory.devices().find(|(ordinal, _)| *ordinal == device)?;
        let total = of.driver.total?;
        let margin = (total / MARGIN).max(MARGIN_LEAST);
        let bytes = of.driver.least_free?.saturating_sub(margin);
        let (stack, cache) = of.kept_tensors()?;
        // Weights are made in many places, a cache in one.
        if bytes < WORTH || cache < total / LEAST {
            return None;
        }
        let has_room = at_end
            .rows
            .iter()
            .all(|row| row.part != MemoryPart::NotRecorded);
        has_room.then(|| Spare {
            device,
            bytes,
            margin,
            cache,
            made_at: CallSite::of(names, stack).function,
        })
    }
}

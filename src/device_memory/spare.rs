//! Memory that a server could add to its cache.

use serde::Serialize;

use super::find::DeviceMemory;
use super::rows::MemoryPart;
use super::sums::MemorySums;
use crate::recording::{CallSite, Function, Names};
use gpushim_trace::Event;

/// Divisor of the device's bytes: tensors of one call site with at least that share are a cache.
const LEAST: u64 = 4;
/// Divisor of the device's bytes for the memory that stays free for the driver; at least
/// `MARGIN_LEAST` bytes.
const MARGIN: u64 = 100;
const MARGIN_LEAST: u64 = 256 << 20;
/// Least bytes that are worth a line.
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
    /// Looks at a device. `None` if it has no large cache, or no memory that was always free.
    pub fn of(memory: &MemorySums, at_end: &DeviceMemory, names: &mut dyn Names) -> Option<Spare> {
        let device = at_end.device.filter(|device| *device != Event::NO_DEVICE)?;
        let (_, of) = memory.devices().find(|(ordinal, _)| *ordinal == device)?;
        let total = of.driver.total?;
        let margin = (total / MARGIN).max(MARGIN_LEAST);
        let bytes = of.driver.least_free?.saturating_sub(margin);
        let (stack, cache) = of.kept_tensors()?;
        // Weights are allocated at many call sites, a cache at one.
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

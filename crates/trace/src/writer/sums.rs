//! The live table and the totals within a mapping, and their sums for each device.

use std::mem::size_of;
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

use super::Mapped;
use super::places::{Place, Places};
use crate::event::{Event, Layer, flags};
use crate::layout::{live, totals};
use crate::live::{Group, Live};
use crate::timeline::Current;
use crate::totals::{Stripe, Tally};

const _: () = assert!(size_of::<Stripe<AtomicU64>>() == totals::STRIPE_BYTES);
const _: () = assert!(size_of::<Group<AtomicU64>>() == live::GROUP_BYTES);

/// The totals; `None` if they are not all within the mapping.
///
/// # Safety
/// The mapping must live longer than what this returns, and the part be accessed atomically only.
pub unsafe fn tally(map: &MmapRaw, places: &Places) -> Option<Tally<'static, AtomicU64>> {
    // SAFETY: the caller promises what `Place::words` wants; a stripe is made of words alone.
    let (before, stripes, after) =
        unsafe { places.totals.words(map)?.align_to::<Stripe<AtomicU64>>() };
    (before.is_empty() && after.is_empty()).then(|| Tally::new(stripes))
}

/// The live table, the second half of it for blocks with places of their own; `None` if it is not
/// all within the mapping.
///
/// # Safety
/// The mapping must live longer than what this returns, and the part be accessed atomically only.
pub unsafe fn live(map: &MmapRaw, places: &Places) -> Option<Live<'static, AtomicU64>> {
    let head = live::HEAD_BYTES as u64;
    let part = places.live;
    let (first, rest) = (
        Place {
            at: part.at,
            length: head,
        },
        Place {
            at: part.at + head,
            length: part.length - head,
        },
    );
    // SAFETY: the caller promises what `Place::words` wants; a group is made of words alone.
    let (head, (before, groups, after)) = unsafe {
        (
            first.words(map)?,
            rest.words(map)?.align_to::<Group<AtomicU64>>(),
        )
    };
    let missed = head.get(live::MISSED / 8)?;
    (before.is_empty() && after.is_empty()).then(|| Live::new(missed, groups, groups.len() / 2))
}

impl Mapped {
    /// Returns the live device memory by device, with the bytes that `held` gives for the pools of
    /// each. Looks at the whole live table, which takes about a millisecond.
    pub(crate) fn sums(&self, held: &mut dyn FnMut(u8) -> Option<u64>) -> Vec<Current> {
        let requested = self.tally.live_bytes(Layer::Device);
        let mut blocks = [(0_u64, 0_u64); totals::DEVICES];
        self.live.each(|event| {
            let row = usize::from(event.device).min(totals::DEVICES - 1);
            let Some((allocated, forwarded)) = blocks.get_mut(row) else {
                return;
            };
            if event.class.layer() == Layer::Device {
                let block = event.cost().block.max(event.size);
                *allocated = allocated.saturating_add(block);
                if event.flags & flags::FORWARDED != 0 {
                    *forwarded = forwarded.saturating_add(block);
                }
            }
        });
        let device = |(row, (requested, (allocated, forwarded))): (usize, (u64, (u64, u64)))| {
            let is_one = row < totals::DEVICES - 1;
            let device = if is_one { row as u8 } else { Event::NO_DEVICE };
            let pools = if is_one { held(device) } else { Some(0) };
            Current {
                device,
                requested,
                // A block that found no place in the table is at least as large as the requested
                // size.
                allocated: allocated.max(requested),
                reserved: pools.map(|pools| pools.saturating_add(forwarded)),
            }
        };
        let rows = requested.into_iter().zip(blocks).enumerate();
        rows.map(device).collect()
    }
}

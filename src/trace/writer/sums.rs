//! The live table and the totals within a mapping.

use std::mem::size_of;
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

use super::places::{Place, Places};
use crate::trace::layout::{live, totals};
use crate::trace::live::{Group, Live};
use crate::trace::totals::{Stripe, Tally};

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

/// The live table; `None` if it is not all within the mapping.
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
    (before.is_empty() && after.is_empty()).then(|| Live::new(missed, groups))
}

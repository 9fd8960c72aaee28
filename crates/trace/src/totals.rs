//! The totals: how many blocks and bytes were ever allocated and freed, by layer and device.
//!
//! Each thread adds to a stripe of its own, by plain loads and stores; the sum over the stripes is the
//! total, at every instant. A stripe outlives its thread, with what it holds, and serves the next one.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::event::Layer;
use super::layout::totals::{DEVICES, LAYERS, STRIPE_BYTES};
use super::ring::Word;
use super::space::Room;

#[cfg(all(test, not(miri)))]
mod model;
#[cfg(test)]
mod tests;

/// The sums of one thread at a time, as they lie in the file.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Stripe<W> {
    /// 1 while a thread has it.
    owner: W,
    unused: [W; 7],
    rows: [Row<W>; LAYERS * DEVICES],
}

/// The sums of one layer on one device.
#[derive(Debug)]
#[repr(C)]
struct Row<W> {
    allocations: W,
    allocated: W,
    frees: W,
    freed: W,
}

/// The stripe that threads share when there is none left for them.
const SHARED: usize = 0;

/// Which stripe one thread has, if it has one.
#[derive(Debug)]
pub struct Claim(Cell<usize>);

impl Claim {
    /// Has no stripe.
    pub const fn none() -> Claim {
        // An index that no stripe has.
        Claim(Cell::new(usize::MAX))
    }

    /// Lets go of the stripe without giving it back: for a trace that is gone or no longer ours.
    pub fn forget(&self) {
        self.0.set(usize::MAX);
    }
}

/// What is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A block that was handed out.
    Allocation,
    /// A block that was given back.
    Free,
}

/// A view of the stripes.
#[derive(Debug)]
pub struct Tally<'a, W> {
    stripes: &'a [Stripe<W>],
    room: Room,
}

impl<'a, W: Word> Tally<'a, W> {
    /// Totals over these stripes, of which the first is shared.
    pub fn new(stripes: &'a [Stripe<W>]) -> Tally<'a, W> {
        Tally {
            stripes,
            room: Room::default(),
        }
    }

    /// In a file that grows.
    pub fn within(self, room: Room) -> Tally<'a, W> {
        Tally { room, ..self }
    }

    /// Adds a block of this many bytes. A thread passes the same `claim` each time, and one that no other
    /// thread passes.
    #[inline]
    pub fn add(&self, claim: &Claim, sort: Sort, (layer, device): (Layer, u8), bytes: u64) {
        let mut index = claim.0.get();
        if index >= self.stripes.len() {
            index = self.claim(claim);
        }
        let row = layer as usize * DEVICES + usize::from(device).min(DEVICES - 1);
        let stripe = self.stripes.get(index);
        let Some(row) = stripe.and_then(|stripe| stripe.rows.get(row)) else {
            return;
        };
        let (count, sum) = match sort {
            Sort::Allocation => (&row.allocations, &row.allocated),
            Sort::Free => (&row.frees, &row.freed),
        };
        if index == SHARED {
            count.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(bytes, Ordering::Relaxed);
        } else {
            // No other thread writes here.
            let add = |word: &W, n: u64| {
                word.store(
                    word.load(Ordering::Relaxed).wrapping_add(n),
                    Ordering::Relaxed,
                );
            };
            add(count, 1);
            add(sum, bytes);
        }
    }

    /// Bytes allocated and not freed, of a layer by device; the last stands for all others and unknown ones.
    /// A free may be seen before its allocation: then it is 0 where it would be less.
    pub fn live_bytes(&self, layer: Layer) -> [u64; DEVICES] {
        std::array::from_fn(|device| {
            let rows = self
                .stripes
                .iter()
                .enumerate()
                .filter_map(|(index, stripe)| {
                    // Not even to be read: on tmpfs that takes space, which a full one does not have.
                    let (first, end) = (index * STRIPE_BYTES, (index + 1) * STRIPE_BYTES);
                    if !(self.room.is_present(first) && self.room.is_present(end - 1)) {
                        return None;
                    }
                    let row = stripe.rows.get(layer as usize * DEVICES + device)?;
                    let freed = row.freed.load(Ordering::Relaxed);
                    Some(row.allocated.load(Ordering::Relaxed).wrapping_sub(freed))
                });
            let sum = rows.fold(0, u64::wrapping_add);
            u64::try_from(sum as i64).unwrap_or(0)
        })
    }

    /// Takes a stripe that no thread has.
    #[cold]
    fn claim(&self, claim: &Claim) -> usize {
        // Acquire: we go on from what the last thread left there.
        let is_free = |(index, stripe): (usize, &Stripe<W>)| {
            self.room.has(index * STRIPE_BYTES, STRIPE_BYTES)
                && stripe.owner.load(Ordering::Relaxed) == 0
                && stripe.owner.swap_if(0, 1, Ordering::Acquire)
        };
        let mut others = self.stripes.iter().enumerate().skip(SHARED + 1);
        let own = others.position(is_free);
        let index = own.map_or(SHARED, |at| SHARED + 1 + at);
        claim.0.set(index);
        index
    }

    /// Gives the stripe back, if the thread has one. What it holds stays.
    pub fn release(&self, claim: &Claim) {
        let index = claim.0.replace(usize::MAX);
        if index != SHARED
            && let Some(stripe) = self.stripes.get(index)
        {
            // Release: the next thread sees our sums.
            stripe.owner.store(0, Ordering::Release);
        }
    }
}

//! The totals: numbers of blocks and bytes ever allocated and freed, by layer and device.
//!
//! Each thread adds to a stripe of its own, by plain loads and stores; the sum over the stripes is
//! the total, at every instant. A stripe keeps its sums when its thread ends, and serves the next
//! thread.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::event::Layer;
use super::layout::totals::{DEVICES, LAYERS, STRIPE_BYTES};
use super::ring::{Word, prefetch};
use super::space::Room;

#[cfg(all(test, not(miri)))]
mod model;
#[cfg(test)]
mod tests;

/// Sums of one thread at a time, as they lie in the file.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Stripe<W> {
    /// 1 while a thread has the stripe.
    owner: W,
    unused: [W; 7],
    rows: [Row<W>; LAYERS * DEVICES],
}

/// Sums of one layer on one device.
#[derive(Debug)]
#[repr(C)]
struct Row<W> {
    allocations: W,
    allocated: W,
    frees: W,
    freed: W,
}

/// Index of the stripe that threads share when no other is left.
const SHARED: usize = 0;

/// Stripe that one thread has, if it has one.
#[derive(Debug)]
pub struct Claim(Cell<usize>);

impl Claim {
    /// Returns a claim without a stripe.
    pub const fn none() -> Claim {
        // An index that no stripe has.
        Claim(Cell::new(usize::MAX))
    }

    /// Drops the stripe without releasing it: for a trace that no longer exists or is of another
    /// process.
    pub fn forget(&self) {
        self.0.set(usize::MAX);
    }
}

/// Event of a block, by the sums to which it adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The block was allocated by the program.
    Allocation,
    /// The block was freed by the program.
    Free,
}

/// View of the stripes of the totals.
#[derive(Debug)]
pub struct Tally<'a, W> {
    stripes: &'a [Stripe<W>],
    room: Room,
}

impl<'a, W: Word> Tally<'a, W> {
    /// Returns totals over these stripes, of which the first is shared.
    pub fn new(stripes: &'a [Stripe<W>]) -> Tally<'a, W> {
        Tally {
            stripes,
            room: Room::default(),
        }
    }

    /// Places the totals in a file that grows.
    pub fn within(self, room: Room) -> Tally<'a, W> {
        Tally { room, ..self }
    }

    /// Prefetches the sums that [`Tally::add`] changes.
    #[inline]
    pub fn prefetch(&self, claim: &Claim, (layer, device): (Layer, u8)) {
        if let Some(row) = self.row(claim.0.get(), (layer, device)) {
            prefetch(row);
        }
    }

    #[inline]
    fn row(&self, stripe: usize, (layer, device): (Layer, u8)) -> Option<&'a Row<W>> {
        let row = layer as usize * DEVICES + usize::from(device).min(DEVICES - 1);
        self.stripes.get(stripe)?.rows.get(row)
    }

    /// Adds a block of this many bytes. A thread passes the same `claim` each time, and no other
    /// thread passes it.
    #[inline]
    pub fn add(&self, claim: &Claim, sort: Sort, (layer, device): (Layer, u8), bytes: u64) {
        let mut index = claim.0.get();
        if index >= self.stripes.len() {
            index = self.claim(claim);
        }
        let Some(row) = self.row(index, (layer, device)) else {
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

    /// Returns the bytes allocated and not freed, of a layer by device. The last entry stands for
    /// all other and unknown devices. A free may be seen before its allocation: a negative sum then
    /// counts as 0.
    pub fn live_bytes(&self, layer: Layer) -> [u64; DEVICES] {
        std::array::from_fn(|device| {
            let rows = self
                .stripes
                .iter()
                .enumerate()
                .filter_map(|(index, stripe)| {
                    // Must not even be read: on tmpfs a read takes space, and a full tmpfs has
                    // none.
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
        // Acquire: this thread continues from the last thread's sums.
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

    /// Releases the stripe, if the thread has one. It keeps its sums.
    pub fn release(&self, claim: &Claim) {
        let index = claim.0.replace(usize::MAX);
        if index != SHARED
            && let Some(stripe) = self.stripes.get(index)
        {
            // Release: the next thread sees these sums.
            stripe.owner.store(0, Ordering::Release);
        }
    }
}

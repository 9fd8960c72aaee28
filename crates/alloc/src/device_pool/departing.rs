//! Driver allocations that are being given back. The pool has no block there any more, but the driver still has the
//! allocation. If the program frees the address once more now, that must not reach the driver: it would succeed, and our
//! own free, which follows, could then free memory that another thread got at the same address.

use crate::handles::{Address, Context};
use rustc_hash::FxHashMap;

/// A driver allocation on its way back.
pub(super) struct Victim {
    pub arena: u64,
    pub device: usize,
    pub context: Context,
    /// As [`super::Device::born`].
    pub born: u64,
    pub address: Address,
    pub bytes: u64,
    /// As [`Departing::add`] tells.
    pub number: u64,
}

/// The addresses.
#[derive(Default)]
pub(super) struct Departing {
    all: FxHashMap<Address, One>,
    next: u64,
}

struct One {
    /// The victim that it is about.
    number: u64,
    arena: u64,
    /// The driver is being told: it may have handed the address out again.
    is_told: bool,
}

impl Departing {
    /// An allocation of an arena is about to go back. Returns the victim's number.
    pub fn add(&mut self, address: Address, arena: u64) -> u64 {
        self.next += 1;
        let one = One {
            number: self.next,
            arena,
            is_told: false,
        };
        self.all.insert(address, one);
        self.next
    }

    /// The number of the newest victim; 0 before the first.
    pub fn latest(&self) -> u64 {
        self.next
    }

    /// The driver is about to be told of a victim.
    pub fn tell(&mut self, victim: &Victim) {
        if let Some(one) = self.all.get_mut(&victim.address) {
            one.is_told |= one.number == victim.number;
        }
    }

    /// A victim has gone back, or is lost.
    pub fn end(&mut self, victim: &Victim) {
        if let Some(one) = self.all.get(&victim.address)
            && one.number == victim.number
        {
            self.all.remove(&victim.address);
        }
    }

    /// An arena's context ends: its addresses may be another's.
    pub fn forget(&mut self, arena: u64) {
        self.all.retain(|_, one| one.arena != arena);
    }

    /// Whether there are any.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the driver is being told of the allocation at an address; `None`: there is no such victim.
    pub fn is_told(&self, address: Address) -> Option<bool> {
        self.all.get(&address).map(|one| one.is_told)
    }
}

//! Driver allocations that are being given back. The pool has no block there any more, but the driver still has the
//! allocation. If the program frees the address once more now, that must not reach the driver: it would succeed, and our
//! own free, which follows, could then free memory that another thread got at the same address.

use super::device::Device;
use super::grow::RELEASE_PATIENCE;
use super::pool::{Guard, Pool};
use super::state::{State, Victim};
use crate::handles::Address;
use crate::types::FreeError;
use rustc_hash::FxHashMap;

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

    /// The driver is about to be told of a victim.
    fn tell(&mut self, victim: &Victim) {
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
}

impl<D: Device> Pool<D> {
    /// Tells the driver to take a victim back.
    pub(super) fn tell(&self, state: &mut Guard<'_, D>, victim: &Victim) -> Result<(), D::Error> {
        let State {
            departing, devices, ..
        } = &mut **state;
        departing.tell(victim);
        if let Some(device) = devices.get_mut(victim.device) {
            device.told += victim.bytes;
        }
        let result = self.outside(state, |device| {
            device.release(victim.context, victim.born, victim.address, victim.bytes)
        });
        if let Some(device) = state.devices.get_mut(victim.device) {
            device.told -= victim.bytes;
        }
        state.released(victim);
        self.changed.notify_all();
        result
    }

    /// Before a free: the address must not be one of a victim.
    ///
    /// # Errors
    /// [`FreeError::NotLive`] if it is.
    #[inline]
    pub(super) fn not_departing(
        &self,
        state: &mut Guard<'_, D>,
        address: Address,
    ) -> Result<(), FreeError<D::Error>> {
        match state.departing.all.is_empty() {
            true => Ok(()),
            false => self.see_off(state, address),
        }
    }

    #[cold]
    fn see_off(
        &self,
        state: &mut Guard<'_, D>,
        address: Address,
    ) -> Result<(), FreeError<D::Error>> {
        loop {
            match state.departing.all.get(&address) {
                Some(one) if !state.map.contains_key(&address) => {
                    // Once the driver has it, the driver knows what is there.
                    let patience = RELEASE_PATIENCE;
                    if !one.is_told || self.changed.wait_for(state, patience).timed_out() {
                        return Err(FreeError::NotLive);
                    }
                }
                _ => return Ok(()),
            }
        }
    }
}

//! The calls that give memory back to the driver, and frees of addresses that are on their way to it.

use super::departing::Victim;
use super::device::Device;
use super::pool::{DevicePool, Guard};
use super::state::State;
use crate::handles::Address;
use crate::types::{FreeError, PATIENCE};

impl<D: Device> DevicePool<D> {
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
        match state.departing.is_empty() {
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
            match state.departing.is_told(address) {
                Some(is_told) if !state.map.contains_key(&address) => {
                    // Once the driver has it, the driver knows what is there.
                    let patience = PATIENCE;
                    if !is_told || self.changed.wait_for(state, patience).timed_out() {
                        return Err(FreeError::NotLive);
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Gives back memory that was not waited for before.
    pub(super) fn release_exported(
        &self,
        state: &mut Guard<'_, D>,
        victim: Victim,
    ) -> Result<(), D::Error> {
        let cover = state.cover(victim.arena);
        if cover.foreign {
            // The driver waits for the memory's own device only.
            let waited = self.outside(state, |device| {
                let mut contexts = cover.contexts.iter();
                contexts.try_for_each(|context| device.finish(*context))
            });
            if let Err(error) = waited {
                // Lost rather than pulled from under running work.
                state.not_released(&victim);
                return Err(error);
            }
        }
        self.tell(state, &victim)
    }

    pub(super) fn release(&self, state: &mut Guard<'_, D>, victims: Vec<Victim>) -> u64 {
        let mut bytes = 0;
        for victim in victims {
            // A driver that refuses has lost its context: the memory is gone either way.
            let _ = self.tell(state, &victim);
            bytes += victim.bytes;
        }
        bytes
    }
}

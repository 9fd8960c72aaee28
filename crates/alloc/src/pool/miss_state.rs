//! Data for requests that find no free memory.

use crate::driver::Driver;
use parking_lot::MutexGuard;

/// Driver function that makes a piece.
pub(super) const CREATE: &str = "cuMemCreate";
/// Data for a miss. One miss at a time has it.
pub(super) struct Misses<E> {
    /// Ordinals of the devices that may use the pool's memory; its own is the first.
    pub devices: Vec<i32>,
    /// Begin and bytes of the reserved addresses, as the driver returned them.
    pub reserved: Option<(u64, u64)>,
    /// First call about pieces that was refused, with its error.
    pub refusal: Option<(&'static str, E)>,
    /// Last call about pieces in the present request that ran out of memory, with its error and the
    /// bytes still needed.
    pub short: Option<(&'static str, E, u64)>,
}

/// Lock of a pool's misses, as a miss holds it.
pub(super) type MissGuard<'a, D> = MutexGuard<'a, Misses<<D as Driver>::Error>>;

/// Waits for the GPU without the lock of misses. The work may itself wait for a thread that needs
/// the pool, or that is about to capture.
pub(super) fn unlocked<E: Copy, T>(
    misses: &mut MutexGuard<'_, Misses<E>>,
    wait: impl FnOnce() -> T,
) -> T {
    // A miss of another thread must not leave its shortage here.
    let short = misses.short;
    let result = MutexGuard::unlocked(misses, wait);
    misses.short = short;
    result
}

impl<E: Copy> Misses<E> {
    /// Notes that a call about pieces failed, for a request in need of `bytes` more bytes.
    pub fn note<D: Driver<Error = E>>(&mut self, call: &'static str, error: E, bytes: u64) {
        if D::is_refusal(error) {
            self.refusal.get_or_insert((call, error));
        } else if D::is_out_of_memory(error) {
            self.short = Some((call, error, bytes));
        }
    }

    /// Notes a refusal of pieces, if the device still has memory for a request that ran out of it.
    /// Returns true if memory has become free meanwhile.
    pub fn give_in<D: Driver<Error = E>>(&mut self, driver: &D, device: i32) -> bool {
        let Some((call, error, bytes)) = self.short else {
            return false;
        };
        let is_refused = match call {
            CREATE => driver.refuses(device, bytes),
            _ => driver.has_plenty(device, bytes),
        };
        if is_refused {
            self.refusal.get_or_insert((call, error));
        }
        !is_refused && driver.has_plenty(device, bytes)
    }
}

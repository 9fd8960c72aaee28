//! What a pool needs for requests that find no memory.

use crate::driver::Driver;

/// The call that makes a piece.
pub(super) const CREATE: &str = "cuMemCreate";
/// What a miss needs; one miss at a time has it.
pub(super) struct Misses<E> {
    /// Devices that may use the pool's memory; its own is the first.
    pub devices: Vec<i32>,
    /// The addresses that the driver reserved, as it returned them: begin and bytes.
    pub reserved: Option<(u64, u64)>,
    /// The first call about pieces that was refused.
    pub refusal: Option<(&'static str, E)>,
    /// The last such call of the present request that failed for the want of memory, and for how many bytes.
    pub short: Option<(&'static str, E, u64)>,
}

impl<E: Copy> Misses<E> {
    /// A call about pieces failed, for a request that still lacks `bytes` bytes.
    pub fn note<D: Driver<Error = E>>(&mut self, call: &'static str, error: E, bytes: u64) {
        if D::is_refusal(error) {
            self.refusal.get_or_insert((call, error));
        } else if D::is_out_of_memory(error) {
            self.short = Some((call, error, bytes));
        }
    }

    /// A request failed for want of memory. If the device has memory, it refuses pieces: that is noted. Returns whether
    /// memory has become free meanwhile.
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

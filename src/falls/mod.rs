//! The fall of live memory that lasts: by how much, why, and of which stacks.
//!
//! `level` goes through a recording once and finds the fall. [`LastingFall`] goes through it again
//! and finds the cause.

mod find;
mod level;
mod screen;

pub use find::LastingFall;
pub use screen::may_last;

/// Part of the peak that a fall must have at least: 1/`PART`.
const PART: u64 = 10;
/// Bytes that a fall must have at least.
const LEAST: u64 = 1 << 20;

/// Returns the smallest fall that counts in a run with this peak, bytes.
fn least(peak: u64) -> u64 {
    (peak / PART).max(LEAST)
}

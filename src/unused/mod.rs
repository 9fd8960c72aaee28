//! Memory that was reserved and not allocated when most was allocated: the cause, and settings that
//! would have reserved less. Both are found by replays of the recording.
//!
//! [`Replays`] serves the requests again, as they were and with changes. [`passed_over`] finds
//! blocks that had been freed and still could not serve a request. [`Cause`] is the conclusion.

mod cause;
mod passed_over;
mod replays;

pub use cause::Cause;
pub use replays::Replays;

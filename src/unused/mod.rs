//! Memory that an allocator reserved and did not hand out when most was handed out: the cause, and what
//! would have held less, both by replays of the recording.
//!
//! [`Replays`] serves the requests again, as they were and with something changed; [`passed_over`] finds
//! blocks that had been freed and still could not serve a request; [`Cause`] is what follows.

mod cause;
mod passed_over;
mod replays;

pub use cause::Cause;
pub use replays::Replays;

//! Recommends settings of gpushim for runs like the recorded ones.
//!
//! A candidate is a policy with its parameters. Each run is replayed with every candidate. The
//! candidates that are not dominated in memory and driver time form a front. The advice is the one
//! on the front with the least memory, then the least time, then the fewest changes. Its driver
//! calls must take at most a stated share of the runs after their start. Then the choice is checked
//! on parts of the data that it was not made from.
//!
//! `GPUSHIM_REUSE` and `GPUSHIM_DECAY` keep their recorded values. The cost of the first is waiting
//! for work, of which a recording has no times. The gain of the second is memory for other
//! processes.

mod advice;
mod candidate;
mod choice;
mod confidence;
mod cost;
mod find;
mod fit;
mod recorded;
mod search;

pub use advice::{Advice, Baseline, Environment, Than, WORTH};
pub use candidate::{Candidate, Families, candidates, size};
pub use choice::{choose, front};
pub use confidence::{Check, Confidence, Level, Parts};
pub use cost::Cost;
pub use find::{Options, Tuned, tune};
pub use recorded::{Recorded, Tried};
pub use search::{Job, Progress, Run, replays};

//! Which settings of gpushim would have served recorded runs best.
//!
//! Every candidate, a policy with its parameters, is tried by a replay of each run. What is left is the front
//! between memory and time in the driver, and one of it is the advice: the least memory,
//! then the least time, then the fewest changes, among those whose driver calls take at most a stated share of the runs
//! after their start. The advice is then put to the test on parts that it was not
//! chosen by.
//!
//! `GPUSHIM_REUSE` and `GPUSHIM_DECAY` stay as they were recorded: what the one costs is waiting for work that a
//! recording does not hold, what the other saves is other processes'.

mod advice;
mod candidate;
mod choice;
pub(crate) mod command;
mod confidence;
mod cost;
mod find;
mod fit;
mod recorded;
mod report;
mod search;
mod sentence;
mod text;

pub use advice::{Advice, Baseline, Environment, Than};
pub use candidate::{Candidate, Families, candidates, size};
pub use choice::{choose, front};
pub use confidence::{Check, Confidence, Level, Parts};
pub use cost::{Cost, Sum};
pub use find::{Options, tune};
pub use recorded::Recorded;
pub use report::TuneReport;
pub use search::{Job, Progress, Run, replays};

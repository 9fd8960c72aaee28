//! Tests of the pools against a simulated device that watches them.

mod block_pieces;
mod blocks;
mod contexts;
mod departing;
mod ends;
mod graphs;
pub(super) mod look_ups;
mod machine;
mod model;
mod mutations;
mod ordering;
mod piece_size;
mod program;
mod random;
mod regressions;
mod shortage;
mod thread_cache;
mod threads;
mod waiting;
mod whole;

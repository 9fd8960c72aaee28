//! Which functions bytes come from: a weight for each stack, as a flame graph, as folded lines, or as a list.

pub(crate) mod command;
mod text;
mod weights;
#[cfg(test)]
pub(crate) use text::FlameReport;
#[cfg(test)]
pub(crate) use weights::{Weight, weights};

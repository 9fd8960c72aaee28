//! Which functions bytes come from: a weight for each stack, as a flame graph, as folded lines, or as a list.

pub(crate) mod command;
mod text;
mod weights;

pub use text::{FlameReport, flame_svg, folded_lines};
pub use weights::{Weight, weights};

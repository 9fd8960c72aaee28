//! Names of blocks that are kept.

use crate::output::units::bytes;

/// Returns a row's label, or the size of blocks of which nothing else is known.
pub fn in_a_table(label: String, size: Option<u64>) -> String {
    match size {
        Some(size) => format!("blocks of {}, no stack recorded", bytes(size)),
        None => label,
    }
}

//! What blocks that are kept are called.

use crate::output::units::bytes;
use crate::recording::CallSite;

/// In a sentence: the function that allocated them, or their size where that is all that is known.
pub fn in_a_sentence(who: &CallSite, size: Option<u64>) -> String {
    match size {
        Some(size) => format!("allocations of {} without a recorded stack", bytes(size)),
        None => who.in_a_sentence(),
    }
}

/// In a table: what it says where a stack is known, or their size.
pub fn in_a_table(label: String, size: Option<u64>) -> String {
    match size {
        Some(size) => format!("blocks of {}, no stack recorded", bytes(size)),
        None => label,
    }
}

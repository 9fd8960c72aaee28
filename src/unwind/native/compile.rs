//! The rule for an address that was not seen before.

use super::rule::Rule;
use super::step::Arrival;
use super::{cfi, code, module, object};

/// The rule for a frame at `pc`. As a side effect an object that is new to us is announced.
#[cold]
#[inline(never)]
pub fn rule(pc: u64, arrival: Arrival) -> Rule {
    // A return address may belong to the next function: the call can be the last thing in its own.
    let inside = match arrival {
        Arrival::Return => pc.wrapping_sub(1),
        Arrival::Interrupted => pc,
    };
    let after_call = arrival == Arrival::Return && code::follows_call(pc);
    let rule = match object::find(inside) {
        Some(object) => {
            module::seen(&object);
            if !object.is_code(inside) {
                Rule::NOT_CODE
            } else {
                cfi::rule(&object, inside, pc).unwrap_or_else(|| untold(arrival, after_call))
            }
        }
        // Code in no object: made at run time.
        None => code::trampoline(pc).unwrap_or_else(|| untold(arrival, after_call)),
    };
    rule.with_after_call(after_call)
}

/// The rule where nothing tells how to unwind.
fn untold(arrival: Arrival, after_call: bool) -> Rule {
    match arrival {
        Arrival::Interrupted => Rule::END,
        Arrival::Return if after_call => Rule::frame_pointer(),
        Arrival::Return => Rule::NOT_CODE,
    }
}

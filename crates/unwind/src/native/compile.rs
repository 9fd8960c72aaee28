//! Compiles the rule for an address that was not seen before.

use super::rule::Rule;
use super::step::Arrival;
use super::{cfi, code, module, object};

/// Makes the rule for a frame at `pc`. As a side effect, an object is announced that was not yet.
#[cold]
#[inline(never)]
pub fn rule(pc: u64, arrival: Arrival) -> Rule {
    // A return address may belong to the next function: the call may be the last instruction of its
    // own.
    let inside = match arrival {
        Arrival::Return => pc.wrapping_sub(1),
        Arrival::Interrupted => pc,
    };
    let after_call = arrival == Arrival::Return && code::follows_call(pc);
    let guess = after_call.then(Rule::frame_pointer);
    let rule = match object::find(inside) {
        Some(object) => {
            module::seen(&object);
            if object.is_code(inside) {
                cfi::rule(&object, inside, pc)
                    .or(guess)
                    .unwrap_or(Rule::END)
            } else {
                Rule::NOT_CODE
            }
        }
        // An address in no object: code made at run time, if it is code.
        None if arrival == Arrival::Interrupted => Rule::END,
        None => code::trampoline(pc).or(guess).unwrap_or(Rule::NOT_CODE),
    };
    rule.with_after_call(after_call)
}

//! The parts of a function: compilers put code that seldom runs elsewhere.

use std::ops::Range;

use super::{cfi, object};

/// Most parts of a function that are returned.
const MOST: usize = 4;
/// Jumps that must lead into a part: fewer may be other bytes that look like jumps.
const JUMPS: u32 = 8;
/// Most other places whose jumps are counted.
const PLACES: usize = 64;

/// Finds the addresses of the code of the function at an address. The first part contains the
/// address. The others are targets of its conditional jumps, which compilers use within a function
/// only. Unused parts are empty.
///
/// Looks at all of the function's code: about a millisecond for a large function.
pub fn parts_of(entry: u64) -> [Range<u64>; MOST] {
    let mut parts = [const { 0..0 }; MOST];
    let Some(object) = object::find(entry) else {
        return parts;
    };
    let Some(whole) = cfi::extent(&object, entry).filter(|_| object.is_code(entry)) else {
        return parts;
    };
    let length = usize::try_from(whole.end - whole.start).unwrap_or(0);
    let code = object.bytes(whole.start).unwrap_or_default();
    let code = code.get(..length).unwrap_or_default();
    let mut seen: [(Range<u64>, u32); PLACES] = [const { (0..0, 0) }; PLACES];
    for (bytes, at) in code.windows(6).zip(whole.start..) {
        // jcc rel32 is 0f 80 to 0f 8f, then the distance from the next instruction.
        let [0x0f, 0x80..=0x8f, a, b, c, d] = *bytes else {
            continue;
        };
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        let target = at.wrapping_add(6).wrapping_add_signed(distance);
        if whole.contains(&target) {
            continue;
        }
        let known = seen.iter_mut().find(|(range, _)| range.contains(&target));
        if let Some((_, count)) = known {
            *count += 1;
        } else if object.is_code(target)
            && let Some(range) = cfi::extent(&object, target)
            && let Some(free) = seen.iter_mut().find(|(_, count)| *count == 0)
        {
            *free = (range, 1);
        }
    }
    seen.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others = seen.into_iter().filter(|(_, count)| *count >= JUMPS);
    let found = std::iter::once(whole).chain(others.map(|(range, _)| range));
    for (part, found) in parts.iter_mut().zip(found) {
        *part = found;
    }
    parts
}

//! Numbers of any size in LEB128: seven bits to a byte, the lowest first, the top bit set on all
//! bytes but the last.

/// Appends a number to the bytes.
///
/// ```
/// let mut bytes = Vec::new();
/// gpushim_trace::leb128::put(&mut bytes, 300);
/// assert_eq!(bytes, [0xac, 0x02]);
/// assert_eq!(gpushim_trace::leb128::take(&mut &bytes[..]), Some(300));
/// ```
pub fn put(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Takes a number off the front; `None` if it does not end, or is larger than 64 bits.
pub fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

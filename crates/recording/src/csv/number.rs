//! Numbers in the fields of a log.

/// Parses a number, decimal or hexadecimal; `(nil)` is C's output for a null pointer.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits),
        b"(nil)" => Some(0),
        digits => decimal(digits),
    }
}

/// Parses a hexadecimal number; the fast path has up to 16 digits.
fn hexadecimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
    }
    text.iter().try_fold(0, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | u64::from(digit))
    })
}

/// Parses a decimal number.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    // 19 digits are never too large.
    if text.is_empty() || text.len() > 19 {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    text.iter().try_fold(0, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then_some(number * 10 + u64::from(digit))
    })
}

//! The line of an instruction, by the tables of the three formats.
//!
//! All take the bytes of the table, the first line of the code object and an offset in bytes;
//! `None` for an instruction that has no line.

use crate::layout::LineTable;

/// Returns the line of the instruction at an offset; −1 is the place before the first one.
pub fn line_of(
    format: LineTable,
    mut table: impl Iterator<Item = u8>,
    first_line: i32,
    offset: i32,
) -> Option<u32> {
    let line = if offset < 0 {
        Some(first_line)
    } else {
        let offset = i64::from(offset);
        match format {
            LineTable::Deltas => Some(deltas(&mut table, first_line, offset)),
            LineTable::Ranges => ranges(&mut table, first_line, offset),
            LineTable::Locations => locations(&mut table, first_line, offset),
        }
    };
    u32::try_from(line?).ok()
}

/// Decodes Objects/lnotab_notes.txt of 3.9: pairs of a byte, the rise of the address, and a signed
/// byte, the change of the line after it.
fn deltas(table: &mut impl Iterator<Item = u8>, first_line: i32, offset: i64) -> i32 {
    let (mut line, mut address) = (first_line, 0_i64);
    while let (Some(rise), Some(change)) = (table.next(), table.next()) {
        address += i64::from(rise);
        if address > offset {
            break;
        }
        line = line.wrapping_add(i32::from(change.cast_signed()));
    }
    line
}

/// Decodes Objects/lnotab_notes.txt of 3.10: pairs of a byte, the length of a range, and a signed
/// byte, the change of its line from the last one. −128 marks a range without a line.
fn ranges(table: &mut impl Iterator<Item = u8>, first_line: i32, offset: i64) -> Option<i32> {
    let (mut line, mut end) = (first_line, 0_i64);
    while let (Some(length), Some(change)) = (table.next(), table.next()) {
        let change = change.cast_signed();
        if change != i8::MIN {
            line = line.wrapping_add(i32::from(change));
        }
        end += i64::from(length);
        if offset < end {
            return (change != i8::MIN).then_some(line);
        }
    }
    None
}

/// Decodes Objects/locations.md. An entry begins with a byte: its highest bit is set, four bits are
/// the code, three the length in instructions less one. The content defined by the code follows.
fn locations(table: &mut impl Iterator<Item = u8>, first_line: i32, offset: i64) -> Option<i32> {
    let (mut line, mut end) = (first_line, 0_i64);
    let mut next = table.next();
    while let Some(first) = next {
        let code = first >> 3 & 15;
        end += 2 * (i64::from(first & 7) + 1);
        // No other byte of an entry has the highest bit set.
        let change = match code {
            // Without columns, and with all of them.
            13 | 14 => signed(table)?,
            one @ 10..=12 => i32::from(one) - 10,
            // 0 to 9: on the same line. 15: none.
            _ => 0,
        };
        line = line.wrapping_add(change);
        if offset < end {
            return (code != 15).then_some(line);
        }
        next = table.find(|byte| byte & 0x80 != 0);
    }
    None
}

/// Decodes a number in pieces of six bits, the lowest first, bit 6 set on all but the last. Its
/// lowest bit is the sign.
fn signed(table: &mut impl Iterator<Item = u8>) -> Option<i32> {
    let (mut value, mut shift) = (0_u32, 0);
    loop {
        let byte = table.next()?;
        value |= u32::from(byte & 63).checked_shl(shift).unwrap_or(0);
        if byte & 64 == 0 {
            break;
        }
        shift += 6;
    }
    let size = (value >> 1).cast_signed();
    Some(if value & 1 == 0 {
        size
    } else {
        size.wrapping_neg()
    })
}

#[cfg(test)]
mod tests;

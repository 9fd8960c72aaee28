//! A map of segments in characters: how full each stretch is.

use std::fmt;

use super::layout::Segment;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent};

/// Number of rows; a few more if segments share rows.
const ROWS: u64 = 24;
/// Number of stretches in a row.
const CELLS: u64 = 48;
/// Characters from empty to full; anything in use is more than empty.
const SHADES: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Writes the map, in the order of addresses. Adjacent segments share a row if there are many.
pub(super) fn write(segments: &[Segment], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let rows = rows(segments);
    if rows.is_empty() {
        return Ok(());
    }
    let are_shared = rows.len() < segments.len();
    let mut table = Table::new([
        ("address", Align::Left),
        ("size", Align::Right),
        (if are_shared { "segments" } else { "" }, Align::Right),
        ("in use", Align::Right),
        ("how full, from · empty to █ full", Align::Left),
    ]);
    for row in rows {
        let size = sum(row, |one| one.size);
        let first = row.first().map_or(0, |one| one.address);
        table.row([
            format!("{first:#x}"),
            bytes(size),
            if are_shared {
                count(row.len() as u64)
            } else {
                String::new()
            },
            percent(sum(row, |one| one.used) as f64, size as f64),
            cells(row, size),
        ]);
    }
    write!(f, "\n{table}")
}

fn sum(row: &[Segment], of: impl Fn(&Segment) -> u64) -> u64 {
    row.iter()
        .fold(0, |sum: u64, segment| sum.saturating_add(of(segment)))
}

/// Groups adjacent segments into rows: each has about as many bytes as the others, or is one
/// segment.
fn rows(segments: &[Segment]) -> Vec<&[Segment]> {
    let least = if segments.len() as u64 > ROWS {
        (sum(segments, |one| one.size) / ROWS).max(1)
    } else {
        0
    };
    let mut rows = Vec::new();
    let (mut from, mut size) = (0, 0_u64);
    for (index, segment) in segments.iter().enumerate() {
        size = size.saturating_add(segment.size);
        if size >= least {
            rows.extend(segments.get(from..=index));
            (from, size) = (index + 1, 0);
        }
    }
    let rest = segments.get(from..).unwrap_or_default();
    if !rest.is_empty() {
        rows.push(rest);
    }
    rows
}

/// Draws the use of each stretch of a row, its segments one after the other.
fn cells(row: &[Segment], size: u64) -> String {
    let cell = size.div_ceil(CELLS).max(1);
    let mut used = vec![0_u64; size.div_ceil(cell).min(CELLS) as usize];
    let mut base = 0_u64;
    for segment in row {
        for (offset, length) in &segment.parts {
            let begin = base.saturating_add(*offset);
            let end = begin.saturating_add(*length);
            let mut at = begin;
            while at < end {
                let index = at / cell;
                let next = (index + 1).saturating_mul(cell).min(end);
                let Some(used) = used.get_mut(index as usize) else {
                    break;
                };
                *used = used.saturating_add(next - at);
                at = next;
            }
        }
        base = base.saturating_add(segment.size);
    }
    let shade = |(index, used): (usize, &u64)| {
        let whole = cell.min(size.saturating_sub(index as u64 * cell)).max(1);
        let full = (u128::from(*used) * 8).div_ceil(u128::from(whole)).min(8);
        SHADES.get(full as usize).copied().unwrap_or('█')
    };
    used.iter().enumerate().map(shade).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(address: u64, size: u64, parts: &[(u64, u64)]) -> Segment {
        Segment {
            address,
            size,
            used: parts
                .iter()
                .fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes)),
            blocks: parts.len() as u64,
            parts: parts.to_vec(),
            ..Segment::default()
        }
    }

    struct Map<'a>(&'a [Segment]);

    impl fmt::Display for Map<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write(self.0, f)
        }
    }

    #[test]
    fn a_row_for_each_segment() {
        let one = segment(0x1000, 480, &[(0, 20), (100, 1), (470, 10)]);
        let two = segment(0x2000, 4, &[(1, 2)]);
        insta::assert_snapshot!(Map(&[one, two]), @"
        address   size    in use  how full, from · empty to █ full
        0x1000   480 B     6.5 %  ██········▁····································█
        0x2000     4 B    50.0 %  ·██·
        ");
    }

    #[test]
    fn many_segments_share_rows() {
        let many: Vec<Segment> = (0..1000_u64)
            .map(|at| segment(at * 100, 100, &[(0, if at < 500 { 100 } else { 0 })]))
            .collect();
        let text = Map(&many).to_string();
        assert_eq!(text.lines().count(), 2 + 24, "{text}");
        assert!(text.contains("100.0 %") && text.contains("0.0 %"), "{text}");
        let hostile = segment(u64::MAX, u64::MAX, &[(u64::MAX, u64::MAX), (3, u64::MAX)]);
        assert!(Map(&[hostile.clone(), hostile]).to_string().lines().count() > 2);
        assert_eq!(Map(&[]).to_string(), "");
    }
}

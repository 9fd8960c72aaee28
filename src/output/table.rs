//! Aligned columns of text.

use std::fmt;

use serde::Serialize;

pub use super::escape::shown;
use super::style::{self, Style, marked};
use super::wrap::paragraph;

/// Fewest characters of a last column that is broken between words or cut off. With less room it is
/// kept as it is.
const NARROWEST: usize = 16;

/// The alignment of a cell in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// Column of words, aligned left.
    Left,
    /// Column of figures, aligned right.
    Right,
}

/// Characters between two columns.
const SPACE: usize = 2;

/// Rows of cells under their headings.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    aligns: Vec<Align>,
    /// The headings, and the rows below them.
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings and no rows.
    pub fn new<const N: usize>(columns: [(&str, Align); N]) -> Table {
        Table {
            aligns: columns.iter().map(|(_, align)| *align).collect(),
            lines: vec![columns.iter().map(|(name, _)| name.to_string()).collect()],
        }
    }

    /// Adds a row. Its cells may be from a file.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.lines
            .push(cells.iter().map(|cell| shown(cell)).collect());
    }

    /// True if the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.lines.len() == 1
    }

    /// Leaves out columns of these headings, in this order, until the line has room.
    ///
    /// The last column stays, and its end may not fit.
    pub fn narrow(&mut self, room: usize, least_first: &[&str]) {
        for name in least_first {
            if self.begin() + NARROWEST <= room {
                break;
            }
            let mut headings = self.lines.iter().flatten().take(self.aligns.len());
            if let Some(at) = headings.position(|heading| heading == name) {
                self.aligns.remove(at);
                self.lines.iter_mut().for_each(|line| drop(line.remove(at)));
            }
        }
    }

    /// The headings and the rows as they are where the width has no end.
    ///
    /// Two spaces are between columns, none at the end of a line.
    pub fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let padded = |((cell, align), width): ((&String, &Align), &usize)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        };
        let line = |line: &Vec<String>| {
            let cells = line.iter().zip(&self.aligns).zip(&widths);
            let cells: Vec<String> = cells.map(padded).collect();
            cells.join(&" ".repeat(SPACE)).trim_end().to_string()
        };
        self.lines.iter().map(line).collect()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |index: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(index));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.aligns.len()).map(width).collect()
    }

    /// Characters of a line before its last column.
    fn begin(&self) -> usize {
        let widths = self.widths();
        widths.iter().rev().skip(1).map(|width| width + SPACE).sum()
    }
}

impl fmt::Display for Table {
    /// Lines of the table. On a terminal that is too narrow, the words of the last column continue below it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = self.begin();
        let is_text = self.aligns.last() == Some(&Align::Left);
        let room = style::columns().map(|columns| columns.saturating_sub(begin));
        let room = room.filter(|room| is_text && *room >= NARROWEST);
        for (index, (text, cells)) in self.lines().iter().zip(&self.lines).enumerate() {
            match (index, room, cells.last()) {
                (0, ..) => writeln!(f, "{}", marked(Style::Heading, text))?,
                (_, Some(room), Some(cell)) if cell.chars().count() > room => {
                    let label: String = text.chars().take(begin).collect();
                    f.write_str(&paragraph(&label, cell, begin + room))?;
                }
                _ => writeln!(f, "{text}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new([
            ("what", Align::Left),
            ("bytes", Align::Right),
            ("who", Align::Left),
        ]);
        table.row(["a".to_string(), "1".to_string(), "x\u{1b}[2Jy".to_string()]);
        table.row(["longer".to_string(), "1,000,000".to_string(), String::new()]);
        let expected =
            "what        bytes  who\na               1  x\\u{1b}[2Jy\nlonger  1,000,000\n";
        assert_eq!(table.to_string(), expected);
    }
}

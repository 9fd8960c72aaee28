//! Aligned columns of text.

use std::fmt;

pub use super::escape::shown;
use super::style::{self, Style, marked};
use super::wrap::paragraph;

/// Fewest characters of a last column that is broken between words. With less room it is kept as it
/// is.
const NARROWEST: usize = 16;

/// The alignment of a cell in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Column of words, aligned left.
    Left,
    /// Column of figures, aligned right.
    Right,
}

/// Characters between two columns.
pub const SPACE: usize = 2;

/// A line of cells, each with the alignment and the width of its column.
pub fn aligned<'a>(cells: impl IntoIterator<Item = (&'a str, Align, usize)>) -> String {
    let mut text = String::new();
    for (cell, align, width) in cells {
        text.push_str(&match align {
            Align::Left => format!("{cell:<width$}{:SPACE$}", ""),
            Align::Right => format!("{cell:>width$}{:SPACE$}", ""),
        });
    }
    text.truncate(text.trim_end().len());
    text
}

/// Rows of cells under their headings.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings and no rows.
    pub fn new<const N: usize>(columns: [(&str, Align); N]) -> Table {
        let columns = columns.into_iter();
        Table {
            columns: columns
                .map(|(name, align)| (name.to_string(), align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Its cells may be from a file.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows
            .push(cells.iter().map(|cell| shown(cell)).collect());
    }

    /// True if the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    /// Two spaces between columns, none at the end of a line.
    ///
    /// On a terminal that is too narrow, the words of the last column continue below it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines = || std::iter::once(&headings).chain(&self.rows);
        let width = |index: usize| {
            let cells = lines().filter_map(|line| line.get(index));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let last = self
            .columns
            .last()
            .filter(|(_, align)| *align == Align::Left);
        let begin: usize = widths.iter().rev().skip(1).map(|width| width + SPACE).sum();
        let room = style::columns().map(|columns| columns.saturating_sub(begin));
        let room = room.filter(|room| last.is_some() && *room >= NARROWEST);
        for (index, line) in lines().enumerate() {
            let cells = line.iter().zip(&self.columns).zip(&widths);
            let text =
                aligned(cells.map(|((cell, (_, align)), width)| (cell.as_str(), *align, *width)));
            match (index, room, line.last()) {
                (0, ..) => writeln!(f, "{}", marked(Style::Heading, &text))?,
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

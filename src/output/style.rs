//! Colours, and the width of lines, where the output is a terminal.
//!
//! Output is built as plain text. Noncharacters of Unicode mark its coloured parts. [`marked`] adds
//! the marks only if [`set`] enabled colours, and [`painted`] replaces them with the terminal's
//! sequences.
//!
//! Text from files cannot contain marks: [`shown`](super::escape::shown) escapes them as it does
//! other characters that cannot be seen.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anstyle::{AnsiColor, Style as Ansi};

/// Meaning of a part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Headings of sections and tables.
    Heading,
    /// Error, damage or failure.
    Bad,
    /// Possible error, or possible improvement.
    Warn,
    /// Advice, or a correct state.
    Good,
    /// Text of less importance.
    Dim,
}

/// Characters of a line where the output is no terminal, and at most where it is one.
pub const WIDTH: usize = 110;
/// No line is made shorter than this, however narrow the terminal is.
const NARROWEST: usize = 40;

/// The first mark, and the mark that ends any other.
const FIRST: u32 = 0xfdd0;
const END: char = '\u{fddf}';

static IS_COLOURED: AtomicBool = AtomicBool::new(false);
static COLUMNS: AtomicUsize = AtomicUsize::new(0);

impl Style {
    const ALL: [Style; 5] = [
        Style::Heading,
        Style::Bad,
        Style::Warn,
        Style::Good,
        Style::Dim,
    ];

    fn mark(self) -> char {
        char::from_u32(FIRST + self as u32).unwrap_or(END)
    }

    fn of(mark: char) -> Option<Style> {
        Style::ALL.into_iter().find(|style| style.mark() == mark)
    }

    fn ansi(self) -> Ansi {
        match self {
            Style::Heading => Ansi::new().bold(),
            Style::Bad => AnsiColor::Red.on_default().bold(),
            Style::Warn => AnsiColor::Yellow.on_default(),
            Style::Good => AnsiColor::Green.on_default(),
            Style::Dim => Ansi::new().dimmed(),
        }
    }

    /// A text in this style, as the terminal wants it; as it is if there are to be no colours.
    pub fn paint(self, text: &str, is_coloured: bool) -> String {
        if !is_coloured || text.is_empty() {
            return text.to_string();
        }
        let ansi = self.ansi();
        format!("{ansi}{text}{ansi:#}")
    }
}

/// Sets whether standard output gets colours, and how many columns its terminal has, if it is one.
pub fn set(is_coloured: bool, columns: Option<usize>) {
    IS_COLOURED.store(is_coloured, Ordering::Relaxed);
    COLUMNS.store(columns.unwrap_or(0), Ordering::Relaxed);
}

/// True if standard output gets colours.
pub fn is_coloured() -> bool {
    IS_COLOURED.load(Ordering::Relaxed)
}

/// Columns of the terminal; `None` if standard output is none.
pub fn columns() -> Option<usize> {
    match COLUMNS.load(Ordering::Relaxed) {
        0 => None,
        columns => Some(columns),
    }
}

/// Characters of a line of sentences.
pub fn line() -> usize {
    columns().map_or(WIDTH, |columns| columns.clamp(NARROWEST, WIDTH))
}

/// Characters of a row of a table: all that the terminal has.
pub fn row() -> usize {
    columns().map_or(WIDTH, |columns| columns.max(NARROWEST))
}

/// Marks a text of standard output with a style.
pub fn marked(style: Style, text: &str) -> String {
    match is_coloured() && !text.is_empty() {
        true => format!("{}{text}{END}", style.mark()),
        false => text.to_string(),
    }
}

/// The sentence that answers the question of a subcommand, on standard output.
pub fn verdict(is_found: bool, text: &str) -> String {
    let style = match is_found {
        true => Style::Bad,
        false => Style::Good,
    };
    marked(style, text)
}

/// True if a character is one of the marks.
pub fn is_mark(letter: char) -> bool {
    letter == END || Style::of(letter).is_some()
}

/// A text with its marks as the sequences of a terminal.
pub fn painted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut open = None::<Ansi>;
    for letter in text.chars() {
        if letter == END {
            if let Some(ansi) = open.take() {
                out.push_str(&format!("{ansi:#}"));
            }
        } else if let Some(style) = Style::of(letter) {
            let ansi = style.ansi();
            out.push_str(&ansi.to_string());
            open = Some(ansi);
        } else {
            out.push(letter);
        }
    }
    if let Some(ansi) = open {
        out.push_str(&format!("{ansi:#}"));
    }
    out
}

/// Visible characters of a text: without marks.
pub fn letters(text: &str) -> usize {
    text.chars().filter(|letter| !is_mark(*letter)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::escape::shown;

    #[test]
    fn marks_become_colours_and_none_comes_from_a_file() {
        let marked = format!("{}bad{END} rest", Style::Bad.mark());
        let painted = painted(&marked);
        assert_eq!(painted, "\u{1b}[1m\u{1b}[31mbad\u{1b}[0m rest");
        assert_eq!(letters(&marked), 8);
        assert_eq!(shown(&marked), "\\u{fdd1}bad\\u{fddf} rest");
        // Nothing stays coloured behind a text that was cut.
        let cut = format!("{}bad", Style::Good.mark());
        assert!(super::painted(&cut).ends_with("bad\u{1b}[0m"));
        assert_eq!(Style::Good.paint("x", false), "x");
        assert_eq!(Style::Good.paint("x", true), "\u{1b}[32mx\u{1b}[0m");
    }
}

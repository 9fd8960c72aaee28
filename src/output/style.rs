//! Colours, and the width of lines, where the output is a terminal.
//!
//! What is printed is put together as plain text, in which noncharacters of Unicode mark what is to be coloured:
//! [`marked`] puts them there only if [`set`] was told to, and [`painted`] turns them into the terminal's own
//! sequences. Text from files cannot have them: [`shown`](super::escape::shown) escapes them as it does other letters that
//! cannot be seen.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anstyle::{AnsiColor, Style as Ansi};

/// What a part of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Headings of sections and tables.
    Heading,
    /// What is wrong.
    Bad,
    /// What may be wrong, or could be better.
    Warn,
    /// What helps, or is right.
    Good,
    /// What matters less.
    Dim,
}

/// Letters of a line where the output is no terminal, and at most where it is one.
pub const WIDTH: usize = 110;
/// No line is made shorter than this, however narrow the terminal is.
const NARROWEST: usize = 40;

/// The first mark, and the one that ends what any other began.
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

/// Whether standard output gets colours.
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

/// Letters of a line of sentences.
pub fn line() -> usize {
    columns().map_or(WIDTH, |columns| columns.clamp(NARROWEST, WIDTH))
}

/// Letters of a row of a table: all that the terminal has.
pub fn row() -> usize {
    columns().map_or(WIDTH, |columns| columns.max(NARROWEST))
}

/// A text, which is part of what is printed on standard output, in a style.
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

/// Whether a letter is one of the marks.
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

/// Letters of a text as they are seen: without marks.
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

//! Writing of text to the terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;
use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

use crate::error::Result;
use crate::output::envelope::Envelope;
use crate::output::escape::{json, screen, shown};
use crate::output::style::{self, Style};
use crate::output::wrap::fitted;
use crate::recording::Recording;

/// When output is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

impl Color {
    /// Sets it for both streams, with the width of the terminal; clap's own output follows it, too.
    pub fn set(self) {
        match self {
            Color::Auto => {}
            Color::Always => ColorChoice::Always.write_global(),
            Color::Never => ColorChoice::Never.write_global(),
        }
        let out = io::stdout();
        style::set(is_coloured(AutoStream::choice(&out)), columns(&out));
    }
}

/// Columns of a terminal that does not know how many it has.
const UNKNOWN: usize = 80;

/// Returns the columns of a stream: `COLUMNS`, or those of its terminal; `None` if it is none.
fn columns(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let set = std::env::var("COLUMNS").ok();
    let set = set.and_then(|columns| columns.parse().ok());
    let of_terminal = || {
        let size = stream.is_terminal().then(|| terminal_size_of(stream))?;
        let columns = size.map_or(0, |(Width(columns), _)| usize::from(columns));
        Some(
            Some(columns)
                .filter(|columns| *columns > 0)
                .unwrap_or(UNKNOWN),
        )
    };
    set.filter(|columns| *columns > 0).or_else(of_terminal)
}

fn is_coloured(choice: ColorChoice) -> bool {
    choice != ColorChoice::Never
}

/// Capabilities of stderr: colours, and the width of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stderr {
    /// True if stderr gets colours.
    pub is_coloured: bool,
    /// Characters that fit into a line.
    pub width: usize,
}

/// Capabilities of stderr at this moment.
pub fn of_stderr() -> Stderr {
    let err = io::stderr();
    let columns = columns(&err).unwrap_or(style::WIDTH);
    Stderr {
        is_coloured: is_coloured(AutoStream::choice(&err)),
        width: columns.clamp(40, style::WIDTH),
    }
}

/// One line on stderr, `gpushim: …`.
pub fn say(what: &dyn Display) {
    // An error of stderr cannot be reported.
    let _ = writeln!(io::stderr(), "gpushim: {}", for_people(&what.to_string()));
}

/// A message without the numbers that the system has for its errors beside their names, and safe to
/// show.
fn for_people(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_string();
    let text = parts.fold(first, |text, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => text + rest,
        _ => text + " (os error " + part,
    });
    shown(&text)
}

/// Lines on stderr, which may have colours. Text from files must already be safe to show.
pub fn say_lines(lines: &[String]) {
    let mut text = lines.join("\n");
    text.push('\n');
    // An error of stderr cannot be reported.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// One line on stderr; the error completes the sentence.
pub fn complain(error: &dyn Display) {
    let failed = Style::Bad.paint("failed", of_stderr().is_coloured);
    // An error of stderr cannot be reported.
    let _ = writeln!(
        io::stderr(),
        "gpushim: {failed} to {}",
        for_people(&error.to_string())
    );
}

/// One line on stderr for each thing that is wrong with a recording.
pub fn say_problems(recording: &dyn Recording) {
    for problem in recording.problems() {
        say(&format!("{}: {problem}", recording.path().display()));
    }
}

/// One line on stderr that a file was written.
pub fn say_wrote(path: &Path) {
    say(&format!("wrote {}", path.display()));
}

/// Answers as indented JSON with a line feed.
pub fn print_json<T: Serialize, J: Serialize>(answers: &Envelope<T, J>) -> Result<()> {
    let text = json(&serde_json::to_string_pretty(answers)?);
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(())
}

/// Text for people: on a terminal with colours, and sentences in lines that fit.
pub fn print_text(text: &str) -> Result<()> {
    let text = screen(text);
    let text = match style::columns() {
        Some(columns) => fitted(&text, columns, style::WIDTH),
        None => text,
    };
    let text = style::painted(&text);
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Text for programs, the same on a terminal and elsewhere.
pub fn print_plain(text: &str) -> Result<()> {
    io::stdout().lock().write_all(screen(text).as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_no_numbers() {
        let error = std::fs::File::open("/no/such/file").expect_err("it is not there");
        assert_eq!(for_people(&error.to_string()), "No such file or directory");
        assert_eq!(
            for_people("read a (os error 2): b (os error 3)"),
            "read a: b"
        );
        assert_eq!(for_people("read a (os error x) b"), "read a (os error x) b");
        assert_eq!(for_people("odd (os error 2"), "odd (os error 2");
    }
}

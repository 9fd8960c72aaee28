//! Output to the terminal.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::error::Result;
use crate::output::envelope::Envelope;
use crate::output::escape::{json, screen, shown};
use crate::recording::Recording;

/// One line on stderr, `gpushim: …`.
pub fn say(what: &dyn Display) {
    // An error of stderr cannot be reported.
    let _ = writeln!(io::stderr(), "gpushim: {}", shown(&what.to_string()));
}

/// One line on stderr; the error completes the sentence.
pub fn complain(error: &dyn Display) {
    say(&format!("failed to {error}"));
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

/// Text for people.
pub fn print_text(text: &str) -> Result<()> {
    io::stdout().lock().write_all(screen(text).as_bytes())?;
    Ok(())
}

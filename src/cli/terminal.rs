//! What goes to the terminal.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::output::escape::{json, screen, shown};
use crate::recording::Recording;

/// One line on stderr, `gpushim: …`.
pub fn say(what: &dyn Display) {
    // If stderr is gone there is nobody to tell.
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

/// A value as indented JSON with a line feed.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = json(&serde_json::to_string_pretty(value)?);
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(())
}

/// Text for people.
pub fn print_text(text: &str) -> anyhow::Result<()> {
    io::stdout().lock().write_all(screen(text).as_bytes())?;
    Ok(())
}

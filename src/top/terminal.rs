//! The terminal of `gpushim top` while it is shown.

use std::io::{self, Write, stdout};
use std::panic::{set_hook, take_hook};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap,
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue, terminal};

use super::screen::Line;
use crate::output::style::painted;

/// Begins a screen of our own. A panic closes it, so that its message can be read.
pub fn open() -> io::Result<()> {
    let hook = take_hook();
    set_hook(Box::new(move |panic| {
        close();
        hook(panic);
    }));
    terminal::enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, DisableLineWrap, Hide)
}

/// Restores the terminal as it was, if it is still there.
pub fn close() {
    let _ = terminal::disable_raw_mode();
    let _ = execute!(stdout(), Show, EnableLineWrap, LeaveAlternateScreen);
}

/// Writes all lines at once, from the first line of the screen.
pub fn paint(lines: &[Line]) -> io::Result<()> {
    let mut frame = Vec::new();
    queue!(frame, BeginSynchronizedUpdate)?;
    for (line, at) in lines.iter().zip(0..) {
        // A line of full width would lose its last character if it were cleared behind it.
        queue!(frame, MoveTo(0, at), Clear(ClearType::UntilNewLine))?;
        write!(frame, "{}", line.style().apply(painted(line.content())))?;
    }
    queue!(frame, EndSynchronizedUpdate)?;
    stdout().write_all(&frame)?;
    stdout().flush()
}

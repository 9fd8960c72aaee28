//! The terminal of `gpushim top` while it is shown.

use std::io::{self, Write, stdout};
use std::panic::{set_hook, take_hook};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::PrintStyledContent;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap,
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{execute, queue};

use super::screen::Line;

/// Begins a screen of our own. A panic closes it, so that its message can be read.
pub fn open() -> io::Result<()> {
    let hook = take_hook();
    set_hook(Box::new(move |panic| {
        close();
        hook(panic);
    }));
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, DisableLineWrap, Hide)
}

/// Restores the terminal as it was; nothing can be done about one that is gone.
pub fn close() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), Show, EnableLineWrap, LeaveAlternateScreen);
}

/// Writes all lines at once, from the first line of the screen.
pub fn paint(lines: &[Line], out: &mut impl Write) -> io::Result<()> {
    let mut frame = Vec::new();
    queue!(frame, BeginSynchronizedUpdate)?;
    for (line, at) in lines.iter().zip(0..) {
        let line = PrintStyledContent(line.clone());
        // A line of full width would lose its last character if it were cleared behind it.
        queue!(frame, MoveTo(0, at), Clear(ClearType::UntilNewLine), line)?;
    }
    queue!(frame, EndSynchronizedUpdate)?;
    out.write_all(&frame)?;
    out.flush()
}

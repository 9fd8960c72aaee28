//! A bar on the terminal for files that take longer than a second to read.

use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::Result;
use crate::recording::{self, Decorator, Recording};
use gpushim_trace::Record;

/// Shorter passes show no bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// Events between two looks at the clock.
const LOOK: u64 = 1 << 16;

/// Opens a recording; on a terminal with a bar that shows how far each pass over its events is.
///
/// # Errors
/// Those of [`recording::open`].
pub fn open(path: &Path) -> Result<Box<dyn Recording>> {
    let begin = Instant::now();
    let recording = recording::open(path)?;
    if !stderr().is_terminal() {
        return Ok(recording);
    }
    Ok(Box::new(Watched {
        recording,
        begin,
        passes: AtomicU64::new(0),
        is_shown: AtomicBool::new(false),
    }))
}

/// Makes a bar that is not on the terminal yet.
fn styled(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A bar for work in a known number of steps, on a terminal, if it takes longer than a second.
pub struct Steps {
    begin: Instant,
    bar: Option<ProgressBar>,
}

impl Steps {
    pub fn new() -> Steps {
        let template = "{msg} {wide_bar} {human_pos} of {human_len}";
        Steps {
            begin: Instant::now(),
            bar: stderr().is_terminal().then(|| styled(0, template)),
        }
    }

    /// Shows `done` of `of` steps.
    pub fn show(&self, what: &'static str, done: usize, of: usize) {
        if let Some(bar) = &self.bar
            && self.begin.elapsed() >= PATIENCE
        {
            bar.set_length(of as u64);
            bar.set_message(what);
            bar.set_position(done as u64);
        }
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A recording whose passes are shown.
struct Watched {
    recording: Box<dyn Recording>,
    begin: Instant,
    passes: AtomicU64,
    /// True if one of the concurrent passes has its bar on the terminal.
    is_shown: AtomicBool,
}

/// One pass over the events of a recording.
struct Pass<'a> {
    events: Box<dyn Iterator<Item = Record> + Send + 'a>,
    watched: &'a Watched,
    number: u64,
    read: u64,
    bar: Option<ProgressBar>,
}

impl Pass<'_> {
    #[cold]
    fn look(&mut self) {
        if self.watched.begin.elapsed() < PATIENCE {
            return;
        }
        if self.bar.is_none() && self.watched.is_shown.swap(true, Ordering::Relaxed) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let readable = Recording::coverage(&*self.watched).readable;
            let bar = styled(
                readable,
                "{msg} {wide_bar} {percent:>3} %, {human_pos} events",
            );
            bar.set_message(format!("reading, pass {}", self.number));
            bar
        });
        bar.set_position(self.read);
    }
}

impl Iterator for Pass<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let record = self.events.next();
        self.read += 1;
        if self.read.is_multiple_of(LOOK) {
            self.look();
        }
        record
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            self.watched.is_shown.store(false, Ordering::Relaxed);
        }
    }
}

impl Decorator for Watched {
    fn inner(&self) -> &dyn Recording {
        &*self.recording
    }

    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_> {
        Box::new(Pass {
            events: self.recording.events(),
            watched: self,
            number: 1 + self.passes.fetch_add(1, Ordering::Relaxed),
            read: 0,
            bar: None,
        })
    }
}

//! `gpushim top`: running processes and their memory.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event};
use crossterm::terminal::size;

use super::screen::Screen;
use super::table::text;
use super::terminal;
use super::watch::Watch;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::terminal::{complain, print_json, print_text};
use crate::error::{Context, Result, failed};
use crate::output::envelope::Envelope;

/// Show running processes: the device memory of each, its allocation rate, and the stacks that hold most.
///
/// Keys: arrows choose a process, Enter shows the stacks that hold its memory, s sorts, h explains
/// all keys, q quits. Without a terminal it prints one table and ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim top                      # all processes here that record
  gpushim top 4711
  gpushim top --once rank*.trace   # one table, of these files")]
pub struct Args {
    /// Process ids or trace files; all recording processes on this machine that you may read if
    /// none is named.
    processes: Vec<PathBuf>,
    /// Print one table and end.
    #[arg(long)]
    once: bool,
    /// Seconds between updates.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    every: Duration,
    /// The output format; JSON is printed once.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The time between the two readings that a rate needs, if one table is printed.
const BETWEEN: Duration = Duration::from_millis(200);
/// Reading traces takes at most 1/`SHARE` of the time.
const SHARE: u32 = 5;

fn seconds(text: &str) -> Result<Duration> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    let seconds =
        seconds.ok_or_else(|| failed!("expected a number of seconds from 0.1 to 3600"))?;
    Ok(Duration::from_secs_f64(seconds))
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut watch = Watch::new(&args.processes)?;
    let (rows, problems) = watch.look();
    problems.iter().for_each(|problem| complain(problem));
    if rows.is_empty() && problems.is_empty() {
        return Err(failed!(
            "find a process that is being recorded: start one with `gpushim run PROGRAM`, or name a trace file"
        ));
    }
    let outcome = if problems.is_empty() {
        Outcome::Fine
    } else {
        Outcome::Failed
    };
    if rows.is_empty() {
        return Ok(outcome);
    }
    if args.once || args.format == Format::Json || !stdout().is_terminal() {
        std::thread::sleep(BETWEEN);
        let processes = watch.look().0;
        match args.format {
            Format::Json => print_json(&Envelope::new("top", false, processes))?,
            Format::Text => print_text(&text(&processes))?,
        }
        return Ok(outcome);
    }
    let shown = terminal::open()
        .context("use the terminal; --once needs none")
        .and_then(|()| live(&mut watch, Screen::new(rows), args.every));
    terminal::close();
    shown?;
    Ok(outcome)
}

/// Shows the processes until the user quits.
fn live(watch: &mut Watch, mut screen: Screen, every: Duration) -> Result<()> {
    let mut due = Instant::now() + BETWEEN;
    loop {
        let (width, height) = size()?;
        let lines = screen.lines(usize::from(width), usize::from(height));
        terminal::paint(&lines)?;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && !screen.key(key)
            {
                return Ok(());
            }
        } else {
            let begin = Instant::now();
            screen.update(watch.look().0);
            due = begin + every.max(begin.elapsed() * SHARE);
        }
    }
}

//! A line for each stack: its functions from the outermost on, joined by semicolons, and a number,
//! as `flamegraph.pl`, inferno and speedscope read it.

use std::collections::BTreeMap;
use std::io::Write;

use super::complete_events::CompleteEvents;
use super::frames::folded;
use super::process::processes;
use super::profile::{Measure, profile};
use crate::error::Result;
use crate::output::escape::is_unseen;
use crate::recording::Recording;

/// Writes the stacks; several recordings stand below a frame each for their process.
pub(super) fn write(
    recordings: &[Box<dyn Recording>],
    measure: Measure,
    out: &mut dyn Write,
) -> Result<()> {
    let (processes, _) = processes(recordings);
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (recording, process) in recordings.iter().zip(&processes) {
        let story = CompleteEvents::of(&**recording);
        let mut names = recording.names();
        for (stack, sums) in profile(&story) {
            let number = sums.get(measure);
            if number == 0 {
                continue;
            }
            let mut line = folded(&names.stack(stack));
            if line.is_empty() {
                line = "(no stack)".to_string();
            }
            if recordings.len() > 1 {
                let label = process.label().replace(';', ":").replace(is_unseen, " ");
                line = format!("{label};{line}");
            }
            let sum = lines.entry(line).or_default();
            *sum = sum.saturating_add(number);
        }
    }
    for (line, number) in lines {
        writeln!(out, "{line} {number}")?;
    }
    Ok(())
}

//! JSON lines: for each recording one object with its name, then its events in order.
//!
//! The functions of a stack come before the first event of the stack.

use std::collections::BTreeMap;
use std::io::Write;

use rustc_hash::FxHashSet;
use serde::Serialize;

use super::frames::{Function, functions};
use super::row::Row;
use crate::error::Result;
use crate::output::escape::json;
use crate::recording::{Coverage, Recording};

#[derive(Serialize)]
struct Head {
    recording: String,
    format: String,
    wall_ns: u64,
    coverage: Coverage,
    facts: BTreeMap<String, Vec<String>>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Stack {
    stack: u32,
    frames: Vec<Function>,
}

/// Writes all recordings, one after the other.
pub(super) fn write(recordings: &[Box<dyn Recording>], out: &mut dyn Write) -> Result<()> {
    for recording in recordings {
        let mut facts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, value) in recording.facts() {
            facts.entry(key).or_default().push(value);
        }
        let head = Head {
            recording: recording.path().display().to_string(),
            format: recording.format(),
            wall_ns: recording.wall_ns(),
            coverage: recording.coverage(),
            facts,
            problems: recording.problems(),
        };
        line(out, &head)?;
        let mut names = recording.names();
        let mut told = FxHashSet::default();
        for record in recording.events() {
            let stack = record.event.stack;
            if stack != 0 && told.insert(stack) {
                let frames = functions(&names.stack(stack));
                line(out, &Stack { stack, frames })?;
            }
            line(out, &Row::of(&**recording, &record))?;
        }
    }
    Ok(())
}

fn line(out: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    writeln!(out, "{}", json(&serde_json::to_string(value)?))?;
    Ok(())
}

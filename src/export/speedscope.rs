//! Speedscope's own format, one weighted profile for each measure. Format: the JSON schema that speedscope
//! publishes, `file-format-schema.json`.

use std::io::Write;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::complete_events::CompleteEvents;
use super::frames::{Function, functions};
use super::process::processes;
use super::profile::{Measure, profile};
use crate::error::Result;
use crate::recording::Recording;

#[derive(Serialize)]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<SharedFrame>,
}

#[derive(Serialize)]
struct SharedFrame {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct Profile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes the profiles of all recordings.
pub(super) fn write(recordings: &[Box<dyn Recording>], out: &mut dyn Write) -> Result<()> {
    let (processes, _) = processes(recordings);
    let mut frames = Vec::new();
    let mut known: FxHashMap<Function, usize> = FxHashMap::default();
    let mut profiles = Vec::new();
    for (recording, process) in recordings.iter().zip(&processes) {
        let story = CompleteEvents::of(&**recording);
        let mut names = recording.names();
        let sums = profile(&story);
        let mut stacks: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (stack, _) in &sums {
            let outermost_first = functions(&names.stack(*stack)).into_iter().rev();
            let mut places: Vec<usize> = outermost_first
                .map(|function| place(&mut known, &mut frames, function))
                .collect();
            if places.is_empty() {
                places.push(place(&mut known, &mut frames, no_stack()));
            }
            stacks.insert(*stack, places);
        }
        for measure in Measure::ALL {
            let of_measure = || sums.iter().filter(|(_, sums)| sums.get(measure) > 0);
            let weights: Vec<u64> = of_measure().map(|(_, sums)| sums.get(measure)).collect();
            let samples = of_measure().filter_map(|(stack, _)| stacks.get(stack).cloned());
            let is_count = measure == Measure::Count;
            profiles.push(Profile {
                r#type: "sampled",
                name: format!("{}, {}", measure.name(), process.label()),
                unit: if is_count { "none" } else { "bytes" },
                start: 0,
                end: weights
                    .iter()
                    .fold(0, |sum, weight| sum.saturating_add(*weight)),
                samples: samples.collect(),
                weights,
            });
        }
    }
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: format!("gpushim {}", env!("CARGO_PKG_VERSION")),
        name: processes.first().map(|p| p.label()).unwrap_or_default(),
        active: 0,
        shared: Shared { frames },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)?;
    Ok(())
}

fn no_stack() -> Function {
    Function {
        name: "(no stack)".to_string(),
        file: String::new(),
        line: 0,
        kind: "unknown",
    }
}

fn place(
    known: &mut FxHashMap<Function, usize>,
    frames: &mut Vec<SharedFrame>,
    function: Function,
) -> usize {
    *known.entry(function).or_insert_with_key(|function| {
        frames.push(SharedFrame {
            name: function.name.clone(),
            file: function.file.clone(),
            line: (function.line > 0).then_some(function.line),
        });
        frames.len() - 1
    })
}

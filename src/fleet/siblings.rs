//! Finds the other ranks of a job, whose traces lie beside the reported one, and judges it among
//! them.

use std::collections::BTreeMap;
use std::path::Path;

use super::beside;
use super::gather::{Gathered, Place};
use super::job::Fleet;
use super::make::process_of;
use super::sorted::process;
use super::text::ranks;
use crate::cli::files;
use crate::recording::{self, Recording};
use crate::report::Finding;
use crate::whole::folder_of;

/// Most time between the starts of a job's ranks, ns: ten minutes.
const TOGETHER_NS: u64 = 600_000_000_000;
/// Most files of a folder that are opened.
const MOST: usize = 1024;
/// Most events of traces without a last summary that are read to judge one rank.
const EVENTS: u64 = 2 << 20;

/// Finds the other ranks of a recording's job, in order. Empty if the recording has no rank.
pub fn of(recording: &dyn Recording) -> BTreeMap<u32, Place> {
    let own = process_of(&recording.facts(), recording.wall_ns(), 0);
    let mut siblings = BTreeMap::new();
    if own.rank.is_none() {
        return siblings;
    }
    let beside = files::within(folder_of(recording.path()));
    for place in beside.into_iter().take(MOST).map(Place::of) {
        let Some(its) = process(&place).filter(|its| its.rank != own.rank && its.job == own.job)
        else {
            continue;
        };
        let apart = its.started_wall_ns.abs_diff(own.started_wall_ns);
        if let (Some(rank), 1.., ..=TOGETHER_NS) = (its.rank, its.started_wall_ns, apart) {
            siblings.entry(rank).or_insert(place);
        }
    }
    siblings
}

/// Formats a line about the other ranks; `None` if there are none.
pub fn in_words(trace: &Path, siblings: &BTreeMap<u32, Place>) -> Option<String> {
    let names: Vec<String> = siblings.keys().map(u32::to_string).collect();
    let are = match names.len() {
        0 => return None,
        1 => "is",
        _ => "are",
    };
    let folder = folder_of(trace).display();
    Some(format!(
        "Of the same job, {} {are} beside this one: gpushim report {folder} compares them.",
        ranks(&names)
    ))
}

/// Returns the finding of a rank that holds more than its siblings. `None` also if too many events
/// would have to be read.
pub fn finding(trace: &Path, siblings: BTreeMap<u32, Place>) -> Option<Finding> {
    if siblings.is_empty() {
        return None;
    }
    let own = Place::of(trace.to_path_buf());
    let places: Vec<Place> = siblings.into_values().chain([own]).collect();
    let mut events = 0_u64;
    for place in &places {
        let summary = place.summary.as_ref();
        let summary = summary.and_then(|path| beside::read(path).ok());
        if !summary.is_some_and(|summary| summary.is_last()) {
            let recording = recording::open(place.trace.as_ref()?).ok()?;
            events = events.saturating_add(recording.coverage().readable);
        }
    }
    if events > EVENTS {
        return None;
    }
    let jobs = Fleet::all(Gathered::of(places, false), None);
    jobs.iter().find_map(|job| job.finding_of(trace))
}

//! Tells the ranks of jobs from separate runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::beside;
use super::gather::{Place, each, places};
use super::make::process_of;
use super::summary::Process;
use crate::error::Result;
use crate::recording::{self, is_snapshot, rank_by_name};

/// Recordings by what can be said of them.
#[derive(Debug, Default)]
pub struct Sorted {
    /// Ranks of jobs, which are compared.
    pub ranks: Vec<Place>,
    /// Recordings of separate runs.
    pub runs: Vec<PathBuf>,
}

impl Sorted {
    /// Finds the recordings of the named files, and those below the named folders. With the name of
    /// a job, all are ranks.
    ///
    /// Recordings are ranks if their job has several ranks. In a folder, a single rank is one if
    /// the launcher started more. A process of which only the summary remains is a rank, too.
    ///
    /// # Errors
    /// A named folder cannot be read, or has none.
    pub fn of(named: &[PathBuf], job: Option<&str>) -> Result<Sorted> {
        let places = places(named)?;
        let is_searched = named.iter().any(|path| path.is_dir());
        let is_one_file = !is_searched && places.len() == 1;
        let processes = match job {
            None if !is_one_file => each(&places, "looking at ranks", process),
            _ => vec![None; places.len()],
        };
        let mut jobs: BTreeMap<&Option<String>, BTreeSet<u32>> = BTreeMap::new();
        for process in processes.iter().flatten() {
            jobs.entry(&process.job).or_default().extend(process.rank);
        }
        let is_rank = |process: &Process| {
            let ranks = jobs.get(&process.job).map_or(0, BTreeSet::len);
            let world = process.world.filter(|_| is_searched).unwrap_or(1);
            process.rank.is_some() && (ranks > 1 || world > 1)
        };
        // A file of which nothing is known is missing in a job, if there is one.
        let has_job = job.is_some() || processes.iter().flatten().any(is_rank);
        let mut sorted = Sorted::default();
        for (place, process) in places.into_iter().zip(&processes) {
            let is_rank = process.as_ref().map_or(has_job, is_rank);
            match place.trace {
                Some(trace) if !is_rank => sorted.runs.push(trace),
                _ => sorted.ranks.push(place),
            }
        }
        Ok(sorted)
    }
}

/// Reads of which job and rank a process is, without its events.
pub(super) fn process(place: &Place) -> Option<Process> {
    let summary = place.summary.as_ref();
    if let Some(summary) = summary.and_then(|path| beside::read(path).ok()) {
        return Some(summary.process);
    }
    let trace = place.trace.as_ref()?;
    if is_snapshot(trace) {
        return Some(Process {
            rank: rank_by_name(trace),
            ..Process::default()
        });
    }
    let recording = recording::open_ring(trace).ok()?;
    Some(process_of(&recording.facts(), recording.wall_ns(), 0))
}

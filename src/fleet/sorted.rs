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
            None if !is_one_file => each(&places, "looking at ranks", named_process),
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
    let recording = recording::open_ring(place.trace.as_ref()?).ok()?;
    Some(process_of(&recording.facts(), recording.wall_ns(), 0))
}

/// Reads the same, of a snapshot by its name alone.
fn named_process(place: &Place) -> Option<Process> {
    match &place.trace {
        Some(trace) if is_snapshot(trace) => Some(Process {
            rank: rank_by_name(trace),
            ..Process::default()
        }),
        _ => process(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Fleet, Gathered};
    use crate::replay::planted::Planted;

    #[test]
    fn snapshots_that_are_called_by_their_ranks_are_one_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let named = [folder.path().to_path_buf()];
        for rank in 0..4_u64 {
            let mut run = Planted::new(16 << 30);
            let kept = if rank == 2 { 40 } else { 0 };
            for _ in 0..20 {
                let batch = run.take("load", 0, 64 << 20).expect("memory");
                if kept > 0 {
                    run.take("remember", 0, kept << 20).expect("memory");
                }
                run.free(batch);
            }
            let path = folder.path().join(format!("rank{rank}_snapshot.pickle"));
            std::fs::write(&path, run.pickle()).expect("written");
        }
        let sorted = Sorted::of(&named, None).expect("a folder");
        assert_eq!((sorted.ranks.len(), sorted.runs.len()), (4, 0));
        let jobs = Fleet::all(Gathered::of(sorted.ranks, false), None);
        let [job] = &jobs[..] else {
            panic!("{} jobs", jobs.len())
        };
        let ranks = job.outliers.iter().map(|one| one.ranks.join(" "));
        assert_eq!(ranks.collect::<Vec<_>>(), ["2"], "{:?}", job.outliers);
        let trace = job.worst().expect("a trace");
        assert!(trace.ends_with("rank2_snapshot.pickle"));
        // Without their ranks the same files are separate runs.
        for rank in 0..4 {
            let path = |name: &str| folder.path().join(format!("{name}{rank}_snapshot.pickle"));
            std::fs::rename(path("rank"), path("run")).expect("renamed");
        }
        let sorted = Sorted::of(&named, None).expect("a folder");
        assert_eq!((sorted.ranks.len(), sorted.runs.len()), (0, 4));
    }
}

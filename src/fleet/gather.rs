//! Finds the summaries and traces below some folders, and reads them on all cores.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Serialize;

use super::beside::{self, SUFFIX};
use super::summary::RankSummary;
use crate::cli::progress::Steps;
use crate::error::{Result, failed};
use crate::recording::{self, is_snapshot, plain, rank_by_name};
use crate::top::State;

/// Folders within folders that are looked into.
const DEPTH: usize = 8;

/// Where something of a process lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its trace, if it is there.
    pub trace: Option<PathBuf>,
    /// The summary, if it is there.
    pub summary: Option<PathBuf>,
}

/// A process whose summary is known.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its files.
    pub place: Place,
    /// What is known of it.
    pub summary: RankSummary,
}

/// A file of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unreadable {
    /// Its path.
    pub file: String,
    /// What stands in the way.
    pub why: String,
}

/// All that was found.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Processes, in the order of their files.
    pub members: Vec<Member>,
    /// Files that cannot be read.
    pub unreadable: Vec<Unreadable>,
}

impl Gathered {
    /// Reads what lies below these folders, or is named itself. With `keeps` a summary that had to be made is written
    /// beside its trace.
    ///
    /// # Errors
    /// A folder that is named cannot be read, or nothing is there.
    pub fn below(folders: &[PathBuf], keeps: bool) -> Result<Gathered> {
        let mut places = BTreeMap::new();
        for folder in folders {
            find(folder, 0, &mut places)?;
        }
        if places.is_empty() {
            return Err(failed!(
                "find the ranks of a job: no *.trace, no *{SUFFIX} and no snapshot called by its rank (rank0.pickle) lies \
                 below {}; name the folder of the traces",
                folders
                    .iter()
                    .map(|folder| folder.display().to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            ));
        }
        let places: Vec<Place> = places.into_values().collect();
        let read = each(&places, "reading ranks", |place| read(place, keeps));
        let mut gathered = Gathered::default();
        for (place, (summary, unreadable)) in places.into_iter().zip(read) {
            gathered.unreadable.extend(unreadable);
            gathered
                .members
                .extend(summary.map(|summary| Member { place, summary }));
        }
        Ok(gathered)
    }
}

/// Does something with each of many things, on all cores; the answers in the order of the things.
pub fn each<T: Sync, A: Send>(
    things: &[T],
    what: &'static str,
    work: impl Fn(&T) -> A + Sync,
) -> Vec<A> {
    let next = AtomicUsize::new(0);
    let steps = Mutex::new((Steps::new(), 0));
    let answers = Mutex::new(Vec::with_capacity(things.len()));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores.min(things.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(thing) = things.get(index) else {
                        return;
                    };
                    let answer = work(thing);
                    if let Ok(mut answers) = answers.lock() {
                        answers.push((index, answer));
                    }
                    if let Ok(mut steps) = steps.lock() {
                        steps.1 += 1;
                        steps.0.show(what, steps.1, things.len());
                    }
                }
            });
        }
    });
    if let Ok((steps, _)) = steps.into_inner() {
        steps.clear();
    }
    let mut answers = answers.into_inner().unwrap_or_default();
    answers.sort_unstable_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Adds the files of a folder and of those in it, by the trace that they belong to. `depth` is that of the folder below
/// the one that was named.
///
/// # Errors
/// It cannot be read, or is a file of another kind.
pub fn find(path: &Path, depth: usize, places: &mut BTreeMap<PathBuf, Place>) -> Result<()> {
    if !path.is_dir() {
        return match add(path, places) {
            true => Ok(()),
            false => Err(failed!(
                "read {}: it is neither a folder nor a trace or summary",
                path.display()
            )),
        };
    }
    let entries = std::fs::read_dir(path);
    let entries = entries.map_err(|error| failed!("read {}: {error}", path.display()))?;
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        match is_folder {
            // A folder below that cannot be read hides no more than itself.
            true if depth < DEPTH => {
                let _ = find(&entry.path(), depth + 1, places);
            }
            true => {}
            false => {
                add(&entry.path(), places);
            }
        }
    }
    Ok(())
}

/// Whether a file is a trace or a summary.
fn add(path: &Path, places: &mut BTreeMap<PathBuf, Place>) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    if name.starts_with('.') {
        return false;
    }
    if let Some(trace) = name.strip_suffix(SUFFIX) {
        let place = places.entry(path.with_file_name(trace)).or_default();
        place.summary = Some(path.to_path_buf());
        return true;
    }
    let is_trace = name.ends_with(".trace") || name.ends_with(".trace.gz");
    // A snapshot that is called by no rank is of no job.
    let is_trace = is_trace || (is_snapshot(path) && rank_by_name(path).is_some());
    if is_trace && path.is_file() {
        let place = places.entry(plain(path)).or_default();
        place.trace = Some(path.to_path_buf());
    }
    is_trace
}

/// The summary of a process, if one could be had, and the files that could not be read.
pub type Read = (Option<RankSummary>, Vec<Unreadable>);

/// The summary of a process: as it lies there if it is the last one, else from the trace if that has more events.
pub fn read(place: &Place, keeps: bool) -> Read {
    let mut unreadable = Vec::new();
    let unread = |path: &Path, error: &dyn std::fmt::Display| Unreadable {
        file: path.display().to_string(),
        why: error.to_string(),
    };
    let kept = place.summary.as_ref().and_then(|path| {
        let read = beside::read(path);
        read.map_err(|error| unreadable.push(unread(path, &error)))
            .ok()
    });
    let Some(trace) = &place.trace else {
        return (kept, unreadable);
    };
    if let Some(summary) = &kept
        && (is_last(summary) || !has_more(trace, summary))
    {
        return (kept, unreadable);
    }
    match recording::open(trace) {
        Ok(recording) => {
            let summary = RankSummary::read(&*recording);
            if keeps && let Err(error) = beside::write(trace, &summary) {
                unreadable.push(unread(&beside::path_of(trace), &error));
            }
            (Some(summary), unreadable)
        }
        Err(error) => {
            unreadable.push(unread(trace, &error));
            (kept, unreadable)
        }
    }
}

fn is_last(summary: &RankSummary) -> bool {
    matches!(summary.end.state, State::Ended | State::Died)
}

/// Whether a trace goes on after its summary was written.
fn has_more(trace: &Path, summary: &RankSummary) -> bool {
    recording::open_ring(trace)
        .is_ok_and(|recording| recording.coverage().recorded > summary.events.recorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_process_are_one_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let within = folder.path().join("node7");
        std::fs::create_dir(&within).expect("made");
        for name in [
            "0.trace.gz",
            "0.trace.summary",
            "0.trace.spool",
            "1.trace",
            "2.trace.summary",
            "rank3.pickle.gz",
            "snapshot.pickle",
            ".gpushim-x.trace",
            "notes.txt",
        ] {
            std::fs::write(within.join(name), "").expect("written");
        }
        let mut places = BTreeMap::new();
        find(folder.path(), 0, &mut places).expect("found");
        let has = |place: &Place| (place.trace.is_some(), place.summary.is_some());
        let all: Vec<_> = places.values().map(has).collect();
        let by_name = [(true, true), (true, false), (false, true), (true, false)];
        assert_eq!(all, by_name);
        let error = find(&within.join("notes.txt"), 0, &mut places);
        assert!(error.is_err());
    }

    #[test]
    fn answers_are_in_the_order_of_the_things() {
        let things: Vec<usize> = (0..1000).collect();
        let doubled = each(&things, "doubling", |thing| thing * 2);
        assert!(doubled.iter().enumerate().all(|(at, two)| *two == at * 2));
        assert_eq!(each(&[0_u8; 0], "nothing", |thing| *thing), [0_u8; 0]);
    }
}

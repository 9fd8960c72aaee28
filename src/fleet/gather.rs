//! Finds the summaries and traces below some folders, and reads them on all cores.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Serialize;

use super::beside::{self, SUFFIX};
use super::summary::RankSummary;
use crate::cli::files;
use crate::cli::progress::Steps;
use crate::compress;
use crate::error::{Result, failed};
use crate::recording::{self, is_packed, is_snapshot, plain, rank_by_name};
use crate::top::{State, is_in_use};
use gpushim_trace::Trace;

/// Most levels of folders to search.
const DEPTH: usize = 8;

/// Paths of the files of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Path of the trace, if it exists.
    pub trace: Option<PathBuf>,
    /// Path of the summary, if it exists.
    pub summary: Option<PathBuf>,
}

impl Place {
    /// Place of a trace, with the summary if one lies beside it.
    pub fn of(trace: PathBuf) -> Place {
        Place {
            summary: Some(path_of(&trace)).filter(|path| path.is_file()),
            trace: Some(trace),
        }
    }
}

/// A process with a known summary.
#[derive(Clone, Debug)]
pub struct Member {
    pub place: Place,
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

/// Processes and unreadable files that a search found.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Processes, in the order of their files.
    pub members: Vec<Member>,
    /// Files that cannot be read.
    pub unreadable: Vec<Unreadable>,
}

impl Gathered {
    /// Reads the files of some processes. With `keeps`, each summary that had to be made is
    /// attached to its trace, if its process has ended.
    pub fn of(places: Vec<Place>, keeps: bool) -> Gathered {
        let read = each(&places, "reading ranks", |place| read(place, keeps));
        let mut gathered = Gathered::default();
        for (place, (summary, unreadable)) in places.into_iter().zip(read) {
            gathered.unreadable.extend(unreadable);
            gathered
                .members
                .extend(summary.map(|summary| Member { place, summary }));
        }
        gathered
    }
}

/// Returns the processes of the named files, and of the files below the named folders.
///
/// # Errors
/// A named folder cannot be read, or has none.
pub fn places(named: &[PathBuf]) -> Result<Vec<Place>> {
    let mut all: Vec<Place> = Vec::new();
    let mut known = BTreeMap::new();
    for path in named {
        let mut found = BTreeMap::new();
        if path.is_dir() {
            find(path, 0, &mut found)?;
        } else {
            add(path, &mut found);
        }
        if found.is_empty() {
            // Recordings of other programs, and traces by another name.
            let others = files::within(path).into_iter();
            let others = others.filter(|path| !path.is_dir());
            found.extend(others.map(|path| (path.clone(), Place::of(path))));
        }
        if found.is_empty() {
            return Err(failed!(
                "read the trace {}: it is a folder without traces, summaries and snapshots; name one that has them",
                path.display()
            ));
        }
        for (name, place) in found {
            let at = known.get(&name).copied();
            match at.and_then(|at: usize| all.get_mut(at)) {
                Some(one) if one.trace.is_none() || place.trace.is_none() => {
                    one.trace = one.trace.take().or(place.trace);
                    one.summary = one.summary.take().or(place.summary);
                }
                _ => {
                    known.insert(name, all.len());
                    all.push(place);
                }
            }
        }
    }
    Ok(all)
}

/// Calls `work` for each element on all cores. The results are in the order of the elements.
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

/// Adds the files of a folder and of its subfolders, by the trace to which they belong. `depth`
/// counts the levels below the named folder.
///
/// # Errors
/// The folder cannot be read.
fn find(path: &Path, depth: usize, places: &mut BTreeMap<PathBuf, Place>) -> Result<()> {
    let entries = std::fs::read_dir(path);
    let entries = entries.map_err(|error| failed!("read {}: {error}", path.display()))?;
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        match is_folder {
            // An unreadable subfolder is skipped.
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

/// Adds a trace or a summary to its place. Other files are left out.
fn add(path: &Path, places: &mut BTreeMap<PathBuf, Place>) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    if name.starts_with('.') {
        return;
    }
    if let Some(trace) = name.strip_suffix(SUFFIX) {
        let place = places.entry(path.with_file_name(trace)).or_default();
        place.summary = Some(path.to_path_buf());
        return;
    }
    let is_trace = name.ends_with(".trace") || name.ends_with(".trace.gz");
    // A snapshot belongs to a job only if its name contains a rank.
    let is_trace = is_trace || (is_snapshot(path) && rank_by_name(path).is_some());
    if is_trace && path.is_file() {
        places.insert(plain(path), Place::of(path.to_path_buf()));
    }
}

/// Returns the path of the file that has the summary of a trace in an earlier form.
fn path_of(trace: &Path) -> PathBuf {
    let mut name = plain(trace).into_os_string();
    name.push(SUFFIX);
    name.into()
}

/// The summary of a process, if there is one, and the files that could not be read.
pub type Read = (Option<RankSummary>, Vec<Unreadable>);

/// Reads the summary of a process: the one attached to its trace, or the one in a file. It is used
/// if it was written at the end of the process, if the trace has no more events, or if there is no
/// trace. Otherwise the summary is made from the trace, of a running process from its newest events.
pub fn read(place: &Place, keeps: bool) -> Read {
    let mut unreadable = Vec::new();
    let unread = |path: &Path, error: &dyn std::fmt::Display| Unreadable {
        file: path.display().to_string(),
        why: error.to_string(),
    };
    let attached = place.trace.as_ref().and_then(|path| {
        let read = beside::read_attached(path).transpose()?;
        Some(read.map_err(|error| unread(path, &error)))
    });
    let in_file = || {
        let path = place.summary.as_ref()?;
        Some(beside::read(path).map_err(|error| unread(path, &error)))
    };
    let kept = attached.or_else(in_file);
    let kept = kept.and_then(|read| read.map_err(|error| unreadable.push(error)).ok());
    let Some(trace) = &place.trace else {
        return (kept, unreadable);
    };
    if let Some(summary) = &kept
        && (summary.is_last() || !has_more(trace, summary))
    {
        return (kept, unreadable);
    }
    let plain = Trace::open_ring(trace).ok();
    // Snapshots and files of gzip take no data.
    let takes_data = plain.is_some() || is_packed(trace);
    let opened = match plain.is_some_and(|trace| is_in_use(&trace)) {
        // All events of a long run would take minutes to read.
        true => recording::open_ring(trace),
        false => recording::open(trace),
    };
    match opened {
        Ok(recording) => {
            let summary = RankSummary::read(&*recording);
            if keeps && takes_data && summary.end.state != State::Running {
                let attached = beside::attachment(&summary)
                    .and_then(|attachment| compress::attach(trace, &[attachment]));
                unreadable.extend(attached.err().map(|error| unread(trace, &error)));
            }
            (Some(summary), unreadable)
        }
        Err(error) => {
            unreadable.push(unread(trace, &error));
            (kept, unreadable)
        }
    }
}

/// True if a trace has more events than its summary.
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
        // A file by another name is a recording of its own, and one that is named twice is two.
        let named = ["notes.txt", "0.trace.gz", "1.trace", "1.trace"];
        let all = super::places(&named.map(|name| within.join(name))).expect("found");
        let all: Vec<_> = all.iter().map(has).collect();
        assert_eq!(
            all,
            [(true, false), (true, true), (true, false), (true, false)]
        );
    }

    #[test]
    fn answers_are_in_the_order_of_the_things() {
        let things: Vec<usize> = (0..1000).collect();
        let doubled = each(&things, "doubling", |thing| thing * 2);
        assert!(doubled.iter().enumerate().all(|(at, two)| *two == at * 2));
        assert_eq!(each(&[0_u8; 0], "nothing", |thing| *thing), [0_u8; 0]);
    }
}

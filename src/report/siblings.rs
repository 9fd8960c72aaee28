//! Finds the other ranks of a job, whose traces lie beside the reported one.

use std::path::{Path, PathBuf};

use crate::cli::files;
use crate::recording::{self, Recording};
use crate::whole::folder_of;

/// Most time between the starts of a job's ranks, ns: ten minutes.
const TOGETHER_NS: u64 = 600_000_000_000;
/// Most files of a folder that are opened.
const MOST: usize = 1024;

/// Trace of another rank of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sibling {
    pub rank: u64,
    pub path: PathBuf,
}

/// Finds the other ranks of a recording's job, in order; empty if the recording has no rank.
pub fn of(recording: &dyn Recording) -> Vec<Sibling> {
    let Some(rank) = recording.process().rank_number() else {
        return Vec::new();
    };
    let path = recording.path();
    let beside = files::named_or_newest(&[folder_of(path).to_path_buf()]).unwrap_or_default();
    let beside = beside
        .into_iter()
        .filter(|one| one.file_name() != path.file_name());
    let sibling = |path: PathBuf| {
        let other = recording::open_ring(&path).ok()?;
        let is_together =
            other.wall_ns().abs_diff(recording.wall_ns()) <= TOGETHER_NS && other.wall_ns() > 0;
        let its = other
            .process()
            .rank_number()
            .filter(|its| *its != rank && is_together)?;
        Some(Sibling { rank: its, path })
    };
    let mut siblings: Vec<Sibling> = beside.take(MOST).filter_map(sibling).collect();
    siblings.sort_by(|a, b| (a.rank, &a.path).cmp(&(b.rank, &b.path)));
    siblings.dedup_by_key(|one| one.rank);
    siblings
}

/// Formats a line about the other ranks; `None` if there are none.
pub fn in_words(trace: &Path, siblings: &[Sibling]) -> Option<String> {
    let first = siblings.first()?;
    let ranks = if siblings.len() == 1 {
        format!("Rank {} of the same job is", first.rank)
    } else {
        let shown: Vec<_> = siblings
            .iter()
            .take(8)
            .map(|one| one.rank.to_string())
            .collect();
        let more = match siblings.len().saturating_sub(8) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("Ranks {}{more} of the same job are", shown.join(", "))
    };
    Some(format!(
        "{ranks} beside this one: gpushim report {} compares them.",
        folder_of(trace).display()
    ))
}

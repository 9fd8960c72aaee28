//! Findings of all analyses, the most important first, and the questions that a recording leaves
//! open.

use std::thread;

use super::overview::Overview;
use crate::recording::{Names, Recording};

mod blocks;
mod finding;
mod memory;
mod oom;
mod untold;

pub use finding::{Finding, Kind};
pub use untold::{Topic, Untold};

/// Most findings at the top of a report.
pub const SHOWN: usize = 3;

/// Findings of a run, and its open questions.
#[derive(Debug)]
pub struct Findings {
    /// Findings, the most important first.
    pub all: Vec<Finding>,
    /// Sentence about steady memory, if there are iterations and memory does not grow.
    pub steady: Option<String>,
    /// Questions that the recording leaves open.
    pub untold: Vec<Untold>,
}

impl Findings {
    /// Finds everything in a run. It takes the shortages out of the overview.
    pub fn of(
        recording: &dyn Recording,
        overview: &mut Overview,
        names: &mut dyn Names,
    ) -> Findings {
        let mut all = Vec::new();
        let mut steady = None;
        let mut fall = None;
        let shortages = std::mem::take(&mut overview.shortages);
        let overview = &*overview;
        // Both branches read all events again.
        thread::scope(|scope| {
            scope.spawn(|| fall = blocks::lasting_fall(recording, overview));
            all.extend(oom::find(recording, overview, shortages, names));
            let of_blocks;
            (of_blocks, steady) = blocks::find(recording, overview, names);
            all.extend(of_blocks);
            all.extend(memory::find(recording, overview, names));
        });
        all.extend(fall.and_then(|fall| blocks::of_fall(recording, overview, &fall, names)));
        all.sort_by_key(Finding::rank);
        let is_steady = all.iter().all(|one| !one.kind.is_of_iterations());
        Findings {
            untold: untold::find(recording, overview),
            steady: steady.filter(|_| is_steady),
            all,
        }
    }
}

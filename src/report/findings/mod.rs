//! What stands out in a run, from all analyses: the findings, the most important first; and what could not be told, with
//! what to record next time.

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

/// How many findings a screen begins with.
pub const SHOWN: usize = 3;

/// What stands out in a run.
#[derive(Debug)]
pub struct Findings {
    /// The most important first.
    pub all: Vec<Finding>,
    /// If there are iterations and memory does not grow: a sentence that says so.
    pub steady: Option<String>,
    /// What could not be told.
    pub untold: Vec<Untold>,
}

impl Findings {
    /// Of a run. Takes the shortages of its overview.
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
        // Both go through all events again.
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

//! The reason for a failed request: the smallest set of conditions without which it would have
//! succeeded.

use serde::Serialize;

use super::cause::Cause;
use super::figures::Situation;
use super::find::Shortage;
use super::fits::Fits;
use super::leak::Leak;
use super::replayed::Replayed;
use super::search::{Smallest, Without, World, smallest};
use crate::recording::Recording;

/// Conditions that are left out together at most: by figures, and by replays, each of which takes a
/// while.
const TOGETHER: [usize; 2] = [3, 2];

/// The way in which causes were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The run was replayed without them.
    Replay,
    /// By the sums of that moment.
    Figures,
}

/// Why a request could not be met.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Without all of these it would have been met.
    pub causes: Vec<Cause>,
    /// Others, each of which alone would have been enough, too.
    pub instead: Vec<Cause>,
    /// The way in which they were found.
    pub by: Evidence,
    /// Allocators and amounts of memory that would have met it, by replay.
    pub fits: Fits,
}

impl Explanation {
    /// Finds the causes by the sums of the moment alone.
    pub(super) fn by_figures(situation: &Situation) -> Explanation {
        let found = match situation.is_met() {
            true => Smallest::default(),
            false => smallest(situation, TOGETHER[0]),
        };
        Explanation::new(situation, &found, Evidence::Figures, Fits::default())
    }

    /// Finds the causes by replays of the recording, if possible; else by the sums.
    pub(super) fn by_replay(
        recording: &dyn Recording,
        shortage: &Shortage,
        situation: &Situation,
        leak: &Leak,
    ) -> Explanation {
        if situation.too_large().is_some() {
            return Explanation::by_figures(situation);
        }
        match Replayed::of(recording, shortage, situation, leak) {
            Ok(replayed) => {
                let found = smallest(&replayed, TOGETHER[1]);
                let fits = Fits::of(&replayed, shortage.by_framework);
                Explanation::new(situation, &found, Evidence::Replay, fits)
            }
            Err(why) => Explanation {
                fits: Fits::untold(why),
                ..Explanation::by_figures(situation)
            },
        }
    }

    fn new(situation: &Situation, found: &Smallest, by: Evidence, fits: Fits) -> Explanation {
        let named = |all: &[_]| all.iter().map(|one| situation.cause(*one)).collect();
        let (mut causes, instead): (Vec<Cause>, _) = (named(&found.set), named(&found.instead));
        if let Some(cause) = situation.too_large() {
            causes = vec![cause];
        } else if causes.is_empty() {
            causes = vec![situation.rest()];
        }
        Explanation {
            causes,
            instead,
            by,
            fits,
        }
    }

    /// Returns the cause that is named first.
    pub fn cause(&self) -> Cause {
        self.causes.first().copied().unwrap_or(Cause::Unknown)
    }

    /// Returns the reason to believe it, for people.
    pub fn why(&self) -> &'static str {
        let is_alone = matches!(
            self.cause(),
            Cause::TooLarge { .. }
                | Cause::DriverRefused { .. }
                | Cause::Full { .. }
                | Cause::Unknown
        );
        match self.by {
            _ if is_alone => "the allocator that refused it said so",
            Evidence::Replay => "a replay of the run meets the request without it, and not with it",
            Evidence::Figures => "by what the allocator and the device had at that moment",
        }
    }
}

impl Situation {
    /// Returns true if the memory at the moment seems enough.
    fn is_met(&self) -> bool {
        self.fits(Without::NONE)
    }
}

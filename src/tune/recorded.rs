//! The recordings that candidates are tried on, and what came of a candidate.

use std::collections::BTreeMap;

use super::candidate::Candidate;
use super::cost::{Cost, Sum};
use super::search::Run;
use crate::ledger::Focus;
use crate::loops::{Given, Iterations};
use crate::recording::Recording;
use crate::requests::Requests;
use gpushim_trace::Layer;

/// A recording, as far as it matters here.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its requests, by device.
    pub devices: BTreeMap<u8, Requests>,
    /// When each iteration began and the last one ended, ns; empty without iterations.
    pub starts: Vec<u64>,
    /// Whether it is sure that these are iterations.
    pub is_sure: bool,
    /// Whether they are those of a framework's tensors, which our pools serve by takeover only.
    pub tensors: bool,
    /// The settings that it was recorded under, `GPUSHIM_*`.
    pub settings: BTreeMap<String, String>,
    /// Whether the events of its beginning are lost.
    pub is_wrapped: bool,
}

/// A candidate that was tried.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The candidate.
    pub candidate: Candidate,
    /// What came of each run.
    pub costs: Vec<Cost>,
    /// Of all runs.
    pub sum: Sum,
}

impl Recorded {
    /// Reads a recording, if given with what the user set that its iterations begin with.
    pub fn of(recording: &dyn Recording, focus: Focus, given: Option<&Given>) -> Recorded {
        let found = Iterations::judged(recording, focus, given);
        let is_sure = found.as_ref().is_some_and(|found| found.certainty.sure);
        let starts = found.map_or(Vec::new(), |found| found.starts);
        let settings = recording.facts().into_iter();
        Recorded {
            devices: Requests::of(recording, focus),
            starts: starts.iter().map(|start| start.ns).collect(),
            is_sure,
            tensors: focus.layer == Layer::Tensor,
            settings: settings
                .filter(|(key, _)| key.starts_with("GPUSHIM_"))
                .collect(),
            is_wrapped: recording.coverage().wrapped,
        }
    }

    /// Whether a device has requests besides those of blocks that were made before the recording began.
    pub fn has_history(&self) -> bool {
        self.devices.values().any(Requests::has_history)
    }

    /// Whether more may have been live before the events that are left, on any device.
    pub fn is_peak_unsure(&self) -> bool {
        self.devices.values().any(Requests::is_peak_unsure)
    }

    /// How many iterations there are.
    pub fn iterations(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Iterations that are warm-up: one in ten, and at least the first.
    pub(super) fn warm_up(&self) -> usize {
        (self.iterations() / 10).max(1)
    }

    /// Iterations after the warm-up.
    pub fn steady_iterations(&self) -> usize {
        self.iterations().saturating_sub(self.warm_up())
    }

    /// When the start of the run is over, ns: what comes then comes again and again. After the warm-up; without
    /// iterations, when the memory that is live on each device first comes to nine tenths of its peak.
    pub fn started(&self) -> u64 {
        if self.iterations() > 0 {
            return self.starts.get(self.warm_up()).copied().unwrap_or(0);
        }
        self.devices.values().map(Requests::full).max().unwrap_or(0)
    }

    /// Ns that it took after its start.
    pub fn steady(&self) -> u64 {
        let ends = self.devices.values().map(Requests::end);
        ends.max().unwrap_or(0).saturating_sub(self.started())
    }

    /// The requests of each device.
    pub fn runs(&self) -> Vec<Run<'_>> {
        let started = self.started();
        let runs = self.devices.values();
        runs.map(|requests| Run { requests, started }).collect()
    }
}

/// The most that was live at once in any run, bytes.
pub(super) fn peak(runs: &[Run]) -> u64 {
    runs.iter()
        .map(|run| run.requests.peak())
        .max()
        .unwrap_or(0)
}

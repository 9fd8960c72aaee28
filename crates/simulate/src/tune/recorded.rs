//! Recordings that candidates are tried on, and the costs of a candidate.

use std::collections::BTreeMap;

use super::candidate::Candidate;
use super::cost::Cost;
use super::search::Run;
use gpushim_analysis::ledger::Focus;
use gpushim_analysis::loops::{Given, Iterations};
use gpushim_analysis::requests::Requests;
use gpushim_recording::Recording;
use gpushim_trace::Layer;

/// The parts of a recording that a search needs.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Requests of the recording, by device.
    pub devices: BTreeMap<u8, Requests>,
    /// Time at which each iteration began and the last one ended, ns; empty without iterations.
    pub starts: Vec<u64>,
    /// True if the iterations are certain.
    pub is_sure: bool,
    /// True if the requests are a framework's tensors, which the pools serve only under takeover.
    pub tensors: bool,
    /// Variables `GPUSHIM_*` under which the recording was made.
    pub settings: BTreeMap<String, String>,
    /// True if the first events of the run are lost.
    pub is_wrapped: bool,
}

/// Replays of one candidate.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Settings of the replays.
    pub candidate: Candidate,
    /// Costs by run, in the order of the runs.
    pub costs: Vec<Cost>,
    /// Costs of all runs together.
    pub sum: Cost,
}

impl Recorded {
    /// Reads a recording. `given` is the start of its iterations according to the user.
    pub fn of(recording: &dyn Recording, focus: Focus, given: Option<&Given>) -> Recorded {
        let found = Iterations::find(recording, focus, given);
        let is_sure = found.as_ref().is_some_and(|found| found.certainty.sure);
        let starts = found.map_or(Vec::new(), |found| found.starts);
        Recorded {
            devices: Requests::of(recording, focus),
            starts: starts.iter().map(|start| start.ns).collect(),
            is_sure,
            tensors: focus.layer == Layer::Tensor,
            settings: recording.process().variables,
            is_wrapped: recording.coverage().wrapped,
        }
    }

    /// True if a device has requests besides the blocks that were live when the recording began.
    pub fn has_history(&self) -> bool {
        self.devices.values().any(Requests::has_history)
    }

    /// True if more may have been live before the readable events, on any device.
    pub fn is_peak_unsure(&self) -> bool {
        self.devices.values().any(Requests::is_peak_unsure)
    }

    /// Number of all iterations.
    pub fn iterations(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Number of iterations that are warm-up: one in ten, and at least the first.
    pub(super) fn warm_up(&self) -> usize {
        (self.iterations() / 10).max(1)
    }

    /// Number of iterations after the warm-up.
    pub fn steady_iterations(&self) -> usize {
        self.iterations().saturating_sub(self.warm_up())
    }

    /// End of the start of the run, ns; later requests repeat. It is the end of the warm-up.
    /// Without iterations, it is the time at which each device first has nine tenths of its peak
    /// live.
    pub fn started(&self) -> u64 {
        if self.iterations() > 0 {
            return self.starts.get(self.warm_up()).copied().unwrap_or(0);
        }
        self.devices.values().map(Requests::full).max().unwrap_or(0)
    }

    /// Duration of the run after its start, ns.
    pub fn steady(&self) -> u64 {
        let ends = self.devices.values().map(Requests::end);
        ends.max().unwrap_or(0).saturating_sub(self.started())
    }

    /// Returns the requests of each device as runs.
    pub fn runs(&self) -> Vec<Run<'_>> {
        let started = self.started();
        let runs = self.devices.values();
        runs.map(|requests| Run { requests, started }).collect()
    }
}

/// Most bytes that were live at once in any run.
pub(super) fn peak(runs: &[Run]) -> u64 {
    runs.iter()
        .map(|run| run.requests.peak())
        .max()
        .unwrap_or(0)
}

//! What a plan made of a recording is like.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::find::{Choice, Kind, Plan, choose};
use super::place::{Budget, Effort};
use crate::ledger::Focus;
use crate::output::answer::{Answer, Subject};
use crate::output::escape::shown;
use crate::output::units::{bytes, count};
use crate::recording::Recording;
use crate::replay::{ReplayDevice, held_with};
use crate::requests::{Anomalies, Requests};
use gpushim_alloc::plan::{Family, Plans};

/// The plan for the pools of a recording.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanReport {
    #[serde(flatten)]
    subject: Subject,
    /// Where it was written.
    file: String,
    /// What was compared, by device.
    devices: Vec<OfDevice>,
    /// The plans, by device and pool. A pool for which `vmm` alone serves as well or better has none.
    pools: Vec<OfPool>,
    /// By device, what made no sense in the recording.
    odd: Vec<(u8, Anomalies)>,
    /// Whether there are requests besides those of blocks that were made before the recording began.
    has_history: bool,
    #[serde(skip)]
    plans: Plans,
}

/// What a simulation of the recorded requests held from the driver at most.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OfDevice {
    gpu: u8,
    /// With the plans that were chosen, bytes.
    held: u64,
    /// Under `vmm` without a plan, bytes.
    held_by_vmm: u64,
}

/// The plan for one pool.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OfPool {
    gpu: u8,
    /// `plain`: of `cudaMalloc`; `streams`: of `cudaMallocAsync`.
    family: &'static str,
    /// Whether one period is planned, which is followed again and again, or the whole run, once.
    kind: Kind,
    /// Allocations in the recording.
    allocations: usize,
    /// How many of them go as planned.
    covered: usize,
    /// Allocations that repeat themselves at the end of the plan; 0 if none do.
    period: usize,
    /// The peak of requested bytes that were not freed, among what is covered, bytes.
    peak_requested: u64,
    /// Bytes that all places take together.
    bytes: u64,
    /// No placement of these blocks takes fewer bytes.
    least: u64,
}

impl PlanReport {
    /// Makes the plan, to be written to this file. `watch` is told how many steps of how many the search has taken.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        file: String,
        watch: &mut dyn FnMut(u64, u64),
    ) -> PlanReport {
        let mut report = PlanReport {
            subject: Subject::of(recording, focus),
            file,
            devices: Vec::new(),
            pools: Vec::new(),
            odd: Vec::new(),
            has_history: false,
            plans: Plans::default(),
        };
        // A run begins at its beginning.
        let requests = if report.subject.wrapped {
            BTreeMap::new()
        } else {
            Requests::of(recording, focus)
        };
        let mut budget = Budget::new(Effort::USUAL, watch);
        let mut among = requests.len();
        for (gpu, requests) in requests {
            if requests.has_history() {
                let device = ReplayDevice::default();
                let simulate = |plans: &Plans| held_with(plans, &device, &requests);
                let choice = budget.share(among, |budget| choose(&requests, &simulate, budget));
                report.take(gpu, &choice);
            }
            among -= 1;
            report.odd.push((gpu, requests.odd().clone()));
            report.has_history |= requests.has_history();
        }
        report
    }

    /// Takes what was chosen for a device.
    fn take(&mut self, gpu: u8, choice: &Choice) {
        self.devices.push(OfDevice {
            gpu,
            held: choice.held,
            held_by_vmm: choice.held_by_vmm,
        });
        for (family, plan) in &choice.plans {
            self.pools.push(OfPool::new(gpu, *family, plan));
        }
        self.plans.pools.extend(choice.plans(gpu.into()).pools);
    }

    /// What the pools are to follow.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }
}

impl OfPool {
    fn new(gpu: u8, family: Family, plan: &Plan) -> OfPool {
        let steps = plan.placement.steps().len();
        OfPool {
            gpu,
            family: family.name(),
            kind: plan.kind,
            allocations: plan.allocations,
            covered: plan.covered,
            period: plan.placement.again().map_or(0, |again| steps - again),
            peak_requested: plan.peak_requested,
            bytes: plan.placement.bytes(),
            least: plan.least,
        }
    }

    fn text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            "plain" => "cudaMalloc",
            _ => "streams",
        };
        write!(
            f,
            "gpu {}, {family}: {} of {} allocations have their place in {}, of which {} are live at most",
            self.gpu,
            count(self.covered as u64),
            count(self.allocations as u64),
            bytes(self.bytes),
            bytes(self.peak_requested)
        )?;
        if self.bytes <= self.least {
            write!(f, "; no placement takes less")?;
        } else {
            // Rounded up, so that it is never said to be closer than it is.
            let above = (self.bytes as f64 / self.least as f64 - 1.0) * 1e4;
            let percent = above.ceil() / 100.0;
            write!(f, "; at most {percent:.2} % above the least possible")?;
        }
        match self.kind {
            Kind::Whole => writeln!(f, "; the whole run is planned, once"),
            Kind::Period => writeln!(
                f,
                "; the last {} repeat themselves and are followed for as long as they do",
                count(self.period as u64)
            ),
        }
    }
}

impl Answer for PlanReport {
    const COMMAND: &'static str = "plan";

    /// There is nothing to plan.
    fn is_found(&self) -> bool {
        self.devices.is_empty()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, _top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        if self.is_found() {
            let why = if self.subject.wrapped {
                "A plan has to begin where the run does (record it with GPUSHIM_TRACE_MODE=full)"
            } else if !self.odd.is_empty() && !self.has_history {
                "It says what was live, but has no history of requests"
            } else {
                "There are no requests in it that a pool could serve"
            };
            writeln!(f, "{why}: no plan is written.")?;
        }
        for pool in &self.pools {
            pool.text(f)?;
        }
        for device in &self.devices {
            let (held, by_vmm) = (bytes(device.held), bytes(device.held_by_vmm));
            if self.pools.iter().any(|pool| pool.gpu == device.gpu) {
                writeln!(
                    f,
                    "gpu {}: in a simulation the plan holds {held}, vmm alone {by_vmm}",
                    device.gpu
                )?;
            } else {
                writeln!(
                    f,
                    "gpu {}: in a simulation no plan holds less than vmm alone, {by_vmm}: the plan leaves all places to it",
                    device.gpu
                )?;
            }
        }
        for (gpu, odd) in &self.odd {
            for sentence in odd.sentences() {
                writeln!(f, "  gpu {gpu}: {sentence}")?;
            }
        }
        if self.is_found() {
            return Ok(());
        }
        writeln!(f, "To follow it: GPUSHIM_POLICY=plan:{}", shown(&self.file))
    }
}

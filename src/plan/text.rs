//! What a plan made of a recording is like.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::find::Plan;
use crate::ledger::Focus;
use crate::output::answer::{Answer, Subject};
use crate::output::escape::shown;
use crate::output::units::{bytes, count};
use crate::recording::Recording;
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
    pools: Vec<OfPool>,
    /// By device, what made no sense in the recording.
    odd: Vec<(u8, Anomalies)>,
    /// Whether there are requests besides those of blocks that were made before the recording began.
    has_history: bool,
    #[serde(skip)]
    plans: Plans,
}

/// The plan for one pool.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OfPool {
    gpu: u8,
    /// `plain`: of `cudaMalloc`; `streams`: of `cudaMallocAsync`.
    family: &'static str,
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
}

impl PlanReport {
    /// Makes the plan, to be written to this file.
    pub fn of(recording: &dyn Recording, focus: Focus, file: String) -> PlanReport {
        let mut report = PlanReport {
            subject: Subject::of(recording, focus),
            file,
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
        for (gpu, requests) in requests {
            for family in [Family::Plain, Family::Streams] {
                let Some(plan) = Plan::of(&requests, family) else {
                    continue;
                };
                let key = (gpu.into(), family);
                let steps = plan.placement.steps().len();
                report.pools.push(OfPool {
                    gpu,
                    family: family.name(),
                    allocations: plan.allocations,
                    covered: plan.covered,
                    period: plan.placement.again().map_or(0, |again| steps - again),
                    peak_requested: plan.peak_requested,
                    bytes: plan.placement.bytes(),
                });
                report.plans.pools.insert(key, plan.placement);
            }
            report.odd.push((gpu, requests.odd().clone()));
            report.has_history |= requests.has_history();
        }
        if !report.has_history {
            report.pools.clear();
            report.plans = Plans::default();
        }
        report
    }

    /// What the pools are to follow.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }
}

impl Answer for PlanReport {
    const COMMAND: &'static str = "plan";

    /// There is nothing to plan.
    fn is_found(&self) -> bool {
        self.pools.is_empty()
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
            let family = match pool.family {
                "plain" => "cudaMalloc",
                _ => "streams",
            };
            write!(
                f,
                "gpu {}, {family}: {} of {} allocations have their place in {}, of which {} are live at most",
                pool.gpu,
                count(pool.covered as u64),
                count(pool.allocations as u64),
                bytes(pool.bytes),
                bytes(pool.peak_requested)
            )?;
            if pool.period > 0 {
                write!(
                    f,
                    "; the last {} repeat themselves and are followed for as long as they do",
                    count(pool.period as u64)
                )?;
            }
            writeln!(f)?;
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

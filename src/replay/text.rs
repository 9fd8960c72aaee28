//! Report of `gpushim replay`: a table of allocators.

use std::fmt;

use serde::Serialize;

use crate::ledger::Focus;
use crate::loops::Iterations;
use crate::output::answer::{Answer, Subject};
use crate::output::escape::shown;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, span};
use crate::recording::Recording;
use crate::requests::{Anomalies, Requests};
use gpushim_simulate::replay::{
    Known, LEAST_LIMIT_REPLAYS, Outcome, Policy, ReplayDevice, fits, least_limit, run_watched,
    torch_options,
};

/// The replays of a recording.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReplayReport {
    #[serde(flatten)]
    pub(super) subject: Subject,
    /// One for each device that the recording has memory of.
    pub(super) devices: Vec<OfDevice>,
}

/// The replays of one device's requests.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OfDevice {
    pub(super) gpu: u8,
    requests: u64,
    /// The peak of requested bytes that were not freed, bytes.
    peak_requested: u64,
    /// Most bytes held from the driver by the recording itself; `None` where it does not say.
    recorded_reserved: Option<u64>,
    /// The options of PyTorch's allocator when it was recorded, which `torch` follows; empty if none was set.
    torch_options: String,
    /// Mark by which steps were recognised; `None` where none are known.
    pub(super) steps_by: Option<String>,
    /// Number of steps. Figures are kept of the first 4,096.
    pub(super) steps: u64,
    odd: Anomalies,
    /// True if there are requests besides those of blocks made before the recording began.
    has_history: bool,
    /// True if more may have been live before the events that are left of the run.
    is_peak_unsure: bool,
    pub(super) policies: Vec<OfPolicy>,
}

/// A replay.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OfPolicy {
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) policy: Policy,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
    /// The least limit at which nothing is refused, bytes, to a thousandth; `None` if it was not
    /// asked for or not found.
    pub(super) least_limit: Option<u64>,
}

impl ReplayReport {
    /// Replays a recording with each of these policies on a device, and finds their least limits if
    /// `asks_limit`. `watch` gets the policy, the number of requests that were served, and the
    /// number of all.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        (policies, device, asks_limit): (&[Policy], &ReplayDevice, bool),
        watch: &mut dyn FnMut(Policy, usize, usize),
    ) -> ReplayReport {
        let (all, iterations) = Requests::in_iterations(recording, focus);
        let by = iterations
            .as_ref()
            .map(|found| found.by.in_words(&mut *recording.names()));
        let devices = all.into_iter().map(|(gpu, requests)| OfDevice {
            gpu,
            requests: requests.len() as u64,
            peak_requested: requests.peak(),
            recorded_reserved: requests.recorded_reserved(),
            torch_options: torch_options(&requests),
            steps_by: by.clone(),
            steps: iterations.as_ref().map_or(0, Iterations::count) as u64,
            odd: requests.odd().clone(),
            has_history: requests.has_history(),
            is_peak_unsure: requests.is_peak_unsure(),
            policies: policies
                .iter()
                .map(|policy| OfPolicy::of(*policy, (device, asks_limit), &requests, watch))
                .collect(),
        });
        ReplayReport {
            subject: Subject::of(recording, focus),
            devices: devices.collect(),
        }
    }
}

impl Answer for ReplayReport {
    const COMMAND: &'static str = "replay";

    /// True if a policy ran out of memory.
    fn is_found(&self) -> bool {
        let policies = self.devices.iter().flat_map(|device| &device.policies);
        policies.into_iter().any(|of| of.outcome.out_of_memory > 0)
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, _top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        if self.devices.is_empty() {
            return writeln!(f, "There are no requests in it that a pool could serve.");
        }
        self.devices.iter().try_for_each(|device| device.text(f))
    }
}

impl OfPolicy {
    fn of(
        policy: Policy,
        (device, asks_limit): (&ReplayDevice, bool),
        requests: &Requests,
        watch: &mut dyn FnMut(Policy, usize, usize),
    ) -> OfPolicy {
        let mut allocator = policy.build(device, requests);
        let mut served = |done| watch(policy, done, requests.len());
        let outcome = run_watched(requests, &mut *allocator, &mut served);
        let mut replays = 0;
        let mut is_enough = |limit| {
            replays += 1;
            watch(policy, replays, LEAST_LIMIT_REPLAYS);
            let limit = Some(limit);
            let device = ReplayDevice { limit, ..*device };
            Some(fits(requests, &mut *policy.build(&device, requests)))
        };
        let known = Known {
            live: requests.peak(),
            likely: outcome.peak_reserved,
            enough: None,
        };
        OfPolicy {
            policy,
            outcome,
            least_limit: asks_limit
                .then(|| least_limit(known, &mut is_enough))
                .flatten(),
        }
    }
}

impl OfDevice {
    /// Writes the least limit of each policy that has one.
    fn least_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.policies.iter().filter_map(|of| {
            let limit = of.least_limit?;
            let used = self.peak_requested as f64 / limit.max(1) as f64;
            Some([
                of.policy.name().to_string(),
                bytes(limit),
                format!("{:.1} %", used * 100.0),
            ])
        });
        let mut table = Table::new([
            ("policy", Align::Left),
            ("least limit", Align::Right),
            ("used then", Align::Right),
        ]);
        found.for_each(|row| table.row(row));
        if table.is_empty() {
            return Ok(());
        }
        write!(f, "\n{table}")
    }

    fn text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gpu {}: {} requests, at most {} live",
            self.gpu,
            count(self.requests),
            bytes(self.peak_requested)
        )?;
        if let Some(reserved) = self.recorded_reserved {
            write!(f, "; {} were held when it was recorded", bytes(reserved))?;
        }
        writeln!(f)?;
        if !self.torch_options.is_empty() {
            writeln!(
                f,
                "  torch is as it was set then: {}",
                shown(&self.torch_options)
            )?;
        }
        for sentence in self.odd.sentences() {
            writeln!(f, "  {sentence}")?;
        }
        if !self.has_history {
            writeln!(
                f,
                "  there is no history of requests: each policy holds what was live, requested once"
            )?;
        }
        if self.is_peak_unsure {
            writeln!(
                f,
                "  more may have been live before the events that are left, so the whole run may need more than this"
            )?;
        }
        let mut table = Table::new([
            ("policy", Align::Left),
            ("held", Align::Right),
            ("used", Align::Right),
            ("driver calls", Align::Right),
            ("driver time", Align::Right),
            ("largest free: least, median", Align::Right),
            ("out of memory", Align::Right),
            ("allocator", Align::Left),
        ]);
        for of in &self.policies {
            let outcome = &of.outcome;
            let refused = outcome.first_out_of_memory.map_or(String::new(), |first| {
                format!("{}, first of {}", outcome.out_of_memory, bytes(first.bytes))
            });
            table.row([
                of.policy.name().to_string(),
                bytes(outcome.peak_reserved),
                format!("{:.1} %", outcome.utilization * 100.0),
                count(outcome.driver_calls),
                span(outcome.driver_ns),
                format!(
                    "{}, {}",
                    bytes(outcome.largest_free_least),
                    bytes(outcome.largest_free_median)
                ),
                refused,
                of.policy.about().to_string(),
            ]);
        }
        write!(f, "{table}")?;
        self.least_limits(f)?;
        self.steps(f)
    }
}

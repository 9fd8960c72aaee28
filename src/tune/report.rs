//! Report of `gpushim tune`: recommended settings, figures and sentences.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sentence;
use crate::output::answer::Subject;
use crate::output::units::bytes;
use crate::requests::Anomalies;
use gpushim_alloc as alloc;
use gpushim_simulate::tune::{
    Advice, Check, Confidence, Options, Recorded, Than, Tried, Tuned, WORTH,
};

/// The rule by which the advice is chosen, in one sentence.
pub fn rule(within: f64) -> String {
    format!(
        "the least memory (0.5 % more counts as the same), then the least time (5 % more counts as the same), then the \
         fewest changes, among those whose driver calls take at most {within} % of the run after its start, or the least \
         time if none does"
    )
}

/// Answer of `gpushim tune`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TuneReport {
    pub(super) recordings: Vec<OfRecording>,
    /// Rule by which the advice is chosen.
    pub(super) rule: String,
    within_percent: f64,
    pub(super) limit: Option<u64>,
    /// Ns of all runs, without their start.
    pub(super) steady_ns: u64,
    /// Iterations of all runs, without the warm-up.
    pub(super) iterations: usize,
    /// By memory, the least first.
    pub(super) front: Vec<Row>,
    /// The default settings.
    pub(super) default: Option<Row>,
    /// Settings with which something was refused.
    pub(super) do_not_fit: Vec<Row>,
    pub(super) advice: Option<OfAdvice>,
    /// Settings that come closest, where nothing fits.
    pub(super) closest: Option<Closest>,
    /// The least limits at which the runs still fit: with the best that was tried, and with what
    /// the program has now.
    pub(super) least_limits: Vec<LeastLimit>,
    pub(super) confidence: OfConfidence,
    pub(super) tried: usize,
    pub(super) not_tried: usize,
}

/// The recordings.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OfRecording {
    #[serde(flatten)]
    pub(super) subject: Subject,
    /// When its start was over, ns since the start of the recording.
    started_ns: u64,
    iterations: usize,
    pub(super) devices: Vec<OfDevice>,
}

/// The requests of a device.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OfDevice {
    pub(super) gpu: u8,
    pub(super) requests: u64,
    /// The peak of requested bytes that were not freed, bytes.
    pub(super) peak_requested: u64,
    /// Most bytes held from the driver when it was recorded; `None` where that is not known.
    pub(super) recorded_reserved: Option<u64>,
    pub(super) odd: Anomalies,
}

/// A candidate and what came of it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Row {
    #[serde(skip)]
    pub(super) name: String,
    policy: &'static str,
    page: Option<u64>,
    cache_max: Option<u64>,
    /// Bytes held at most, of the run and device that held the most.
    pub(super) peak_reserved: u64,
    /// Bytes of the device that this takes at most: more where the driver gives whole pages.
    pub(super) peak_taken: u64,
    pub(super) utilization: f64,
    pub(super) driver_calls: u64,
    pub(super) driver_ns: u64,
    /// Figure without the start of each run.
    pub(super) steady_ns: u64,
    pub(super) out_of_memory: u64,
    pub(super) is_advised: bool,
}

/// Settings, and their effect in the replay.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OfAdvice {
    /// Variables to set.
    environment: BTreeMap<&'static str, String>,
    /// Settings as written before a command; empty if the defaults are best.
    pub(super) line: String,
    /// Variables that the recording had and that are not to be set.
    pub(super) unset: Vec<&'static str>,
    #[serde(flatten)]
    pub(super) row: Row,
    /// The smallest `GPUSHIM_LIMIT` that would have been enough, bytes.
    pub(super) smallest_limit: Option<u64>,
    /// Why it is better to change nothing, if it is: then nothing is to be set.
    pub(super) keep: Option<String>,
    /// Sentences to read before.
    pub(super) notes: Vec<&'static str>,
    /// True if driver calls take no longer than the rule allows.
    pub(super) is_within: bool,
    pub(super) saves: Saves,
}

/// The savings.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Saves {
    /// Base of the comparison: `recorded` or `torch`, PyTorch's allocator.
    pub(super) than: &'static str,
    /// Bytes held at most then.
    peak_reserved: Option<u64>,
    /// Bytes less, or more if negative.
    pub(super) bytes: Option<i64>,
    /// Difference in percent of the reserved memory.
    pub(super) percent: Option<f64>,
    /// Base of the comparison of times: `recorded` or `torch`.
    pub(super) time_than: &'static str,
    /// Ns less in the driver, or more if negative.
    pub(super) driver_ns: Option<i64>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Closest {
    #[serde(flatten)]
    pub(super) row: Row,
    pub(super) smallest_limit: Option<u64>,
}

/// The least limit at which the runs still fit.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LeastLimit {
    /// With this policy.
    pub(super) policy: String,
    /// Bytes, to a thousandth.
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OfConfidence {
    #[serde(flatten)]
    confidence: Confidence,
    /// The worst of the checks: percent by which the peak differs from the predicted one.
    difference_percent: Option<f64>,
    /// The worst of the checks: percent that the chosen one holds more than the best.
    regret_percent: Option<f64>,
    pub(super) sentence: String,
}

impl TuneReport {
    /// Builds the report of recordings and the results of their search.
    pub fn new(
        subjects: Vec<Subject>,
        recorded: &[Recorded],
        options: &Options,
        tuned: Tuned,
    ) -> TuneReport {
        let chosen = tuned.advice.as_ref().filter(|advice| advice.is_worth_it);
        let chosen = chosen.map(|advice| advice.chosen);
        let rows: Vec<Row> = (tuned.tried.iter().enumerate())
            .map(|(at, tried)| Row::of(tried, chosen == Some(at)))
            .collect();
        let row = |at: usize| rows.get(at).cloned();
        let default = (tuned.tried.iter().zip(&rows))
            .find(|(tried, _)| tried.candidate.variables().is_empty());
        let recordings = subjects.into_iter().zip(recorded);
        TuneReport {
            recordings: recordings
                .map(|(subject, recorded)| OfRecording::of(subject, recorded))
                .collect(),
            rule: rule(options.within),
            within_percent: options.within,
            limit: options.limit,
            steady_ns: tuned.duration,
            iterations: tuned.iterations,
            front: tuned.front.iter().filter_map(|at| row(*at)).collect(),
            default: default.map(|(_, row)| row.clone()),
            do_not_fit: rows
                .iter()
                .filter(|row| row.out_of_memory > 0)
                .cloned()
                .collect(),
            advice: advice(&tuned, &rows, recorded),
            closest: tuned.closest.and_then(|(at, smallest_limit)| {
                Some(Closest {
                    row: row(at)?,
                    smallest_limit,
                })
            }),
            least_limits: least_limits(&tuned, &rows),
            tried: tuned.tried.len(),
            not_tried: tuned.not_tried,
            confidence: OfConfidence::of(tuned.confidence, tuned.iterations),
        }
    }

    /// True if a recording has requests that can be replayed.
    pub(super) fn has_requests(&self) -> bool {
        self.recordings.iter().any(|one| !one.devices.is_empty())
    }
}

fn least_limits(tuned: &Tuned, rows: &[Row]) -> Vec<LeastLimit> {
    let best = tuned.advice.as_ref().and_then(|advice| {
        let name = &rows.get(advice.chosen)?.name;
        Some((name.as_str(), advice.smallest_limit?))
    });
    let now = tuned.limits_now.iter().copied();
    let others = now.filter(|(name, _)| best.is_none_or(|(best, _)| best != *name));
    let all = best.into_iter().chain(others);
    all.map(|(policy, bytes)| LeastLimit {
        policy: policy.to_string(),
        bytes,
    })
    .collect()
}

fn advice(tuned: &Tuned, rows: &[Row], recorded: &[Recorded]) -> Option<OfAdvice> {
    let advice = tuned.advice.as_ref()?;
    let row = rows.get(advice.chosen)?.clone();
    let baseline = advice.baseline;
    let less =
        |was: u64, is: u64| i64::try_from(i128::from(was) - i128::from(is)).unwrap_or(i64::MIN);
    let saved = baseline
        .peak_reserved
        .map(|was| less(was, row.peak_reserved));
    let saves = Saves {
        than: if baseline.than == Than::Recorded {
            "recorded"
        } else {
            "torch"
        },
        peak_reserved: baseline.peak_reserved,
        bytes: saved,
        percent: (saved.zip(baseline.peak_reserved))
            .map(|(saved, was)| 100.0 * saved as f64 / was.max(1) as f64),
        time_than: if baseline.own_time {
            "recorded"
        } else {
            "torch"
        },
        driver_ns: baseline.driver_ns.map(|was| less(was, row.driver_ns)),
    };
    if !advice.is_worth_it {
        return Some(OfAdvice {
            keep: Some(keep(&row, &saves, recorded)),
            notes: lost(recorded),
            line: String::new(),
            environment: BTreeMap::new(),
            unset: Vec::new(),
            row,
            smallest_limit: None,
            is_within: advice.within,
            saves,
        });
    }
    let mut notes = notes(tuned, advice);
    notes.extend(lost(recorded));
    Some(OfAdvice {
        keep: None,
        notes,
        line: advice.environment.line(),
        environment: advice.environment.set.iter().cloned().collect(),
        unset: advice.environment.unset.clone(),
        row,
        smallest_limit: advice.smallest_limit,
        is_within: advice.within,
        saves,
    })
}

/// Formats the advice to change nothing, with its reason.
fn keep(best: &Row, saves: &Saves, recorded: &[Recorded]) -> String {
    let is_torch = saves.than == "torch" || recorded.iter().any(|one| one.tensors);
    let what = if is_torch {
        "Stay with PyTorch's own allocator"
    } else {
        "Keep what you have"
    };
    let Some(was) = saves.peak_reserved.map(bytes) else {
        return format!(
            "{what}: in what is left of the run nothing that was tried is {WORTH} % better than the settings of the recording."
        );
    };
    let held = match saves.than {
        "torch" => format!("the {was} that PyTorch's allocator holds in a replay"),
        _ => format!("the {was} that were held when it was recorded"),
    };
    let is = bytes(best.peak_reserved);
    let name = &best.name;
    match saves.percent.unwrap_or(0.0) {
        less if less < 0.0 => {
            format!("{what}: the best that was tried, {name}, holds {is}, more than {held}.")
        }
        less => format!(
            "{what}: the best that was tried, {name}, holds {is}, {less:.1} % less than {held}; less than {WORTH} % is not \
             worth a change."
        ),
    }
}

/// Notes on the parts of a recording that are lost with its beginning.
fn lost(recorded: &[Recorded]) -> Vec<&'static str> {
    let mut notes = Vec::new();
    if recorded.iter().any(|one| one.is_wrapped) {
        notes.push(
            "The beginning of the run is no longer in the trace: what was live then is replayed as the first requests, \
             and how it lay is not known.",
        );
    }
    if recorded.iter().any(Recorded::is_peak_unsure) {
        notes.push(
            "More may have been live before that, so what the run needs is not known and no limit is named. Record it with \
             GPUSHIM_TRACE_MODE=full.",
        );
    }
    notes
}

/// Notes that a user should read before following the advice.
fn notes(tuned: &Tuned, advice: &Advice) -> Vec<&'static str> {
    let is_set = |name| {
        advice
            .environment
            .set
            .iter()
            .any(|(other, _)| *other == name)
    };
    let policy = tuned
        .tried
        .get(advice.chosen)
        .map(|tried| tried.candidate.policy);
    let mut notes = Vec::new();
    if is_set("GPUSHIM_TAKEOVER") {
        notes.push("What a framework cannot do under GPUSHIM_TAKEOVER is in docs/frameworks.md.");
    }
    if tuned.families.plain && policy == Some(alloc::Policy::Vmm) {
        notes.push("CUDA IPC then needs gpushim in the importing processes, too.");
    }
    notes
}

impl Row {
    fn of(tried: &Tried, is_advised: bool) -> Row {
        let (candidate, sum) = (&tried.candidate, tried.sum);
        Row {
            name: candidate.to_string(),
            policy: candidate.policy.name(),
            page: candidate.is_paged().then_some(candidate.page),
            cache_max: candidate.cache_max,
            peak_reserved: sum.peak_reserved,
            peak_taken: sum.peak_taken,
            utilization: sum.utilization,
            driver_calls: sum.driver_calls,
            driver_ns: sum.driver_ns,
            steady_ns: sum.steady_ns,
            out_of_memory: sum.out_of_memory,
            is_advised,
        }
    }
}

impl OfRecording {
    fn of(subject: Subject, recorded: &Recorded) -> OfRecording {
        let devices = recorded.devices.iter().map(|(gpu, requests)| OfDevice {
            gpu: *gpu,
            requests: requests.len() as u64,
            peak_requested: requests.peak(),
            recorded_reserved: requests.recorded_reserved(),
            odd: requests.odd().clone(),
        });
        OfRecording {
            subject,
            started_ns: recorded.started(),
            iterations: recorded.iterations(),
            devices: devices.collect(),
        }
    }
}

impl OfConfidence {
    fn of(confidence: Confidence, iterations: usize) -> OfConfidence {
        let worst = |figure: fn(&Check) -> f64| {
            let figures = confidence.checks.iter().map(figure);
            figures.max_by(f64::total_cmp)
        };
        let (difference, regret) = (worst(Check::difference), worst(Check::regret));
        OfConfidence {
            sentence: sentence::sentence(&confidence, iterations),
            confidence,
            difference_percent: difference,
            regret_percent: regret,
        }
    }
}

//! Which settings would have served a run best, in words and figures.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::findings::{Finding, Subject};
use super::table::{Align, Table};
use super::units::{bytes, count, percent, span};
use crate::replay::Odd;
use crate::tune::{Check, Confidence, Level, Options, Parts, Recorded, Than, Tried, Tuned, size};

/// The rule by which the advice is chosen, in one sentence.
pub fn rule(within: f64) -> String {
    format!(
        "the least memory among those whose driver calls take at most {within} % of the run, or the least time if none does"
    )
}

/// What `gpushim tune` finds.
#[derive(Clone, Debug, Serialize)]
pub struct TuneReport {
    recordings: Vec<OfRecording>,
    /// How the advice is chosen.
    rule: String,
    within_percent: f64,
    limit: Option<u64>,
    /// Ns of all runs.
    duration_ns: u64,
    iterations: usize,
    /// By memory, the least first.
    front: Vec<Row>,
    /// The settings that are in force if nobody sets any.
    default: Option<Row>,
    /// Those with which something was refused.
    do_not_fit: Vec<Row>,
    advice: Option<OfAdvice>,
    /// Where nothing fits: what comes closest.
    closest: Option<Closest>,
    plan: Option<OfPlan>,
    confidence: OfConfidence,
    tried: usize,
    not_tried: usize,
}

/// What was read.
#[derive(Clone, Debug, Serialize)]
struct OfRecording {
    #[serde(flatten)]
    subject: Subject,
    duration_ns: u64,
    iterations: usize,
    devices: Vec<OfDevice>,
}

/// The requests of a device.
#[derive(Clone, Debug, Serialize)]
struct OfDevice {
    gpu: u8,
    requests: u64,
    /// The highest sum of what was asked for and not given back, bytes.
    peak_requested: u64,
    /// What was held from the driver at most when it was recorded, bytes; `None` where that is not known.
    recorded_reserved: Option<u64>,
    odd: Odd,
}

/// A candidate and what came of it.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(skip)]
    name: String,
    policy: &'static str,
    page: Option<u64>,
    cache_max: Option<u64>,
    /// Bytes held at most, of the run and device that held the most.
    peak_reserved: u64,
    utilization: f64,
    driver_calls: u64,
    driver_ns: u64,
    out_of_memory: u64,
    is_advised: bool,
}

/// What to set, and what it would have done.
#[derive(Clone, Debug, Serialize)]
struct OfAdvice {
    /// Variables to set.
    environment: BTreeMap<&'static str, String>,
    /// The same as one writes it before a command; empty if the defaults are best.
    line: String,
    /// Variables that the recording had and that are not to be set.
    unset: Vec<&'static str>,
    #[serde(flatten)]
    row: Row,
    /// The smallest `GPUSHIM_LIMIT` that would have been enough, bytes.
    smallest_limit: Option<u64>,
    /// Whether driver calls take no longer than the rule allows.
    is_within: bool,
    saves: Saves,
}

/// What is better than it was.
#[derive(Clone, Debug, Serialize)]
struct Saves {
    /// What it is compared with: `recorded` or `torch`, PyTorch's allocator.
    than: &'static str,
    /// Bytes held at most then.
    peak_reserved: Option<u64>,
    /// Bytes less, or more if negative.
    bytes: Option<i64>,
    /// The same in percent of what was held.
    percent: Option<f64>,
    /// What the time is compared with: `recorded` or `torch`.
    time_than: &'static str,
    /// Ns less in the driver, or more if negative.
    driver_ns: Option<i64>,
}

#[derive(Clone, Debug, Serialize)]
struct Closest {
    #[serde(flatten)]
    row: Row,
    smallest_limit: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct OfPlan {
    peak_reserved: u64,
}

#[derive(Clone, Debug, Serialize)]
struct OfConfidence {
    #[serde(flatten)]
    confidence: Confidence,
    /// The worst of the checks: percent by which the peak differs from the predicted one.
    difference_percent: Option<f64>,
    /// The worst of the checks: percent that the chosen one holds more than the best.
    regret_percent: Option<f64>,
    sentence: String,
}

impl TuneReport {
    /// Of recordings and what came of them.
    pub fn new(subjects: Vec<Subject>, recorded: &[Recorded], options: &Options, tuned: Tuned) -> TuneReport {
        let chosen = tuned.advice.as_ref().map(|advice| advice.chosen);
        let rows: Vec<Row> = (tuned.tried.iter().enumerate())
            .map(|(at, tried)| Row::of(tried, chosen == Some(at)))
            .collect();
        let row = |at: usize| rows.get(at).cloned();
        let default = (tuned.tried.iter().zip(&rows))
            .find(|(tried, _)| tried.candidate.variables(tuned.families).is_empty());
        let recordings = subjects.into_iter().zip(recorded);
        TuneReport {
            recordings: recordings
                .map(|(subject, recorded)| OfRecording::of(subject, recorded))
                .collect(),
            rule: rule(options.within),
            within_percent: options.within,
            limit: options.limit,
            duration_ns: tuned.duration,
            iterations: tuned.iterations,
            front: tuned.front.iter().filter_map(|at| row(*at)).collect(),
            default: default.map(|(_, row)| row.clone()),
            do_not_fit: rows.iter().filter(|row| row.out_of_memory > 0).cloned().collect(),
            advice: advice(&tuned, &rows),
            closest: tuned.closest.and_then(|(at, smallest_limit)| {
                Some(Closest { row: row(at)?, smallest_limit })
            }),
            plan: tuned.plan.map(|peak_reserved| OfPlan { peak_reserved }),
            tried: tuned.tried.len(),
            not_tried: tuned.not_tried,
            confidence: OfConfidence::of(tuned.confidence, tuned.iterations),
        }
    }

    /// Whether there was anything to try.
    fn has_requests(&self) -> bool {
        self.recordings.iter().any(|one| !one.devices.is_empty())
    }
}

fn advice(tuned: &Tuned, rows: &[Row]) -> Option<OfAdvice> {
    let advice = tuned.advice.as_ref()?;
    let row = rows.get(advice.chosen)?.clone();
    let baseline = advice.baseline;
    let less = |was: u64, is: u64| i64::try_from(i128::from(was) - i128::from(is)).unwrap_or(i64::MIN);
    let saved = baseline.peak_reserved.map(|was| less(was, row.peak_reserved));
    let saves = Saves {
        than: if baseline.than == Than::Recorded { "recorded" } else { "torch" },
        peak_reserved: baseline.peak_reserved,
        bytes: saved,
        percent: (saved.zip(baseline.peak_reserved))
            .map(|(saved, was)| 100.0 * saved as f64 / was.max(1) as f64),
        time_than: if baseline.own_time { "recorded" } else { "torch" },
        driver_ns: baseline.driver_ns.map(|was| less(was, row.driver_ns)),
    };
    Some(OfAdvice {
        line: advice.environment.line(),
        environment: advice.environment.set.clone(),
        unset: advice.environment.unset.clone(),
        row,
        smallest_limit: advice.smallest_limit,
        is_within: advice.within,
        saves,
    })
}

impl Row {
    fn of(tried: &Tried, is_advised: bool) -> Row {
        let (candidate, sum) = (&tried.candidate, tried.sum);
        Row {
            name: candidate.to_string(),
            policy: candidate.policy(),
            page: candidate.is_paged().then_some(candidate.page),
            cache_max: candidate.cache_max,
            peak_reserved: sum.peak_reserved,
            utilization: sum.utilization,
            driver_calls: sum.driver_calls,
            driver_ns: sum.driver_ns,
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
            duration_ns: recorded.duration(),
            iterations: recorded.iterations(),
            devices: devices.collect(),
        }
    }

    fn text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.subject.heading(f)?;
        for device in &self.devices {
            write!(
                f,
                "gpu {}: {} requests, at most {} live",
                device.gpu,
                count(device.requests),
                bytes(device.peak_requested)
            )?;
            if let Some(reserved) = device.recorded_reserved {
                write!(f, "; {} were held when it was recorded", bytes(reserved))?;
            }
            writeln!(f)?;
            for sentence in device.odd.sentences() {
                writeln!(f, "  {sentence}")?;
            }
        }
        Ok(())
    }
}

impl Finding for TuneReport {
    /// Nothing fits.
    fn is_found(&self) -> bool {
        self.closest.is_some()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        for recording in &self.recordings {
            recording.text(f)?;
        }
        if !self.has_requests() {
            return writeln!(f, "There are no requests in it that a pool could serve.");
        }
        if self.tried == 0 {
            return writeln!(f, "There was no time to try anything: see --seconds.");
        }
        if !self.front.is_empty() {
            write!(f, "\n{}", self.table(top))?;
        }
        self.refusals(f)?;
        if self.not_tried > 0 {
            let (not, all) = (self.not_tried, self.not_tried + self.tried);
            writeln!(f, "For {not} of {all} candidates there was no time: see --seconds.")?;
        }
        let Some(advice) = &self.advice else {
            return Ok(());
        };
        advice.text(f, self)?;
        if let Some(plan) = &self.plan
            && plan.peak_reserved < advice.row.peak_reserved
        {
            let less = (advice.row.peak_reserved - plan.peak_reserved) as f64;
            writeln!(
                f,
                "The run repeats itself: with a placement made beforehand (`gpushim plan`) {} would be enough, {} less.",
                bytes(plan.peak_reserved),
                percent(less, advice.row.peak_reserved as f64)
            )?;
        }
        writeln!(f, "{}", self.confidence.sentence)
    }
}

impl TuneReport {
    fn table(&self, top: usize) -> Table {
        let mut table = Table::new([
            ("policy", Align::Left),
            ("held", Align::Right),
            ("used", Align::Right),
            ("driver calls", Align::Right),
            ("driver time", Align::Right),
            ("of the run", Align::Right),
            ("per iteration", Align::Right),
            ("", Align::Left),
        ]);
        let is_shown = |row: &Row| self.front.iter().any(|other| other.name == row.name);
        let default = self.default.as_ref().filter(|row| row.out_of_memory == 0 && !is_shown(row));
        for row in self.front.iter().take(top).chain(default) {
            let is_default = self.default.as_ref().is_some_and(|default| default.name == row.name);
            let per_iteration = match self.iterations {
                0 => "-".to_string(),
                iterations => span(row.driver_ns / iterations as u64),
            };
            let remark = match (row.is_advised, is_default) {
                (true, true) => "advised; the default",
                (true, false) => "advised",
                (false, true) => "the default",
                (false, false) => "",
            };
            table.row([
                row.name.clone(),
                bytes(row.peak_reserved),
                format!("{:.1} %", row.utilization * 100.0),
                count(row.driver_calls),
                span(row.driver_ns),
                percent(row.driver_ns as f64, self.duration_ns as f64),
                per_iteration,
                remark.to_string(),
            ]);
        }
        table
    }

    /// What does not fit into the limit.
    fn refusals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        if let Some(closest) = &self.closest {
            write!(f, "Nothing fits into {}.", bytes(limit))?;
            write!(f, " Closest is {}, which refuses {}", closest.row.name, count(closest.row.out_of_memory))?;
            return match closest.smallest_limit {
                Some(least) => writeln!(f, " requests; it needs {}.", bytes(least)),
                None => writeln!(f, " requests."),
            };
        }
        if self.do_not_fit.is_empty() {
            return writeln!(f, "All of them fit into {}.", bytes(limit));
        }
        let names: Vec<&str> = self.do_not_fit.iter().map(|row| row.name.as_str()).collect();
        writeln!(f, "Into {} these do not fit: {}.", bytes(limit), names.join("; "))
    }
}

impl OfAdvice {
    fn text(&self, f: &mut fmt::Formatter<'_>, report: &TuneReport) -> fmt::Result {
        writeln!(f, "\nAdvice: {}.", report.rule)?;
        if !self.is_within {
            writeln!(f, "Here none does.")?;
        }
        if self.line.is_empty() {
            writeln!(f, "\n  no variable: the defaults are best\n")?;
        } else {
            writeln!(f, "\n  {}\n", self.line)?;
        }
        if !self.unset.is_empty() {
            writeln!(f, "Without {}, which was set when it was recorded.", self.unset.join(" and "))?;
        }
        write!(f, "It would have held {} at most", bytes(self.row.peak_reserved))?;
        let than = match self.saves.than {
            "recorded" => "when it was recorded",
            _ => "with PyTorch's allocator",
        };
        if let (Some(saved), Some(share)) = (self.saves.bytes, self.saves.percent) {
            let (size, share) = (bytes(saved.unsigned_abs()), share.abs());
            match saved {
                0 => write!(f, ", as much as {than}")?,
                1.. => write!(f, ", {size} ({share:.1} %) less than {than}")?,
                _ => write!(f, ", {size} ({share:.1} %) more than {than}")?,
            }
        }
        if let Some(limit) = self.smallest_limit {
            write!(f, "; GPUSHIM_LIMIT={} would have been enough", size(limit))?;
        }
        write!(f, ". Its driver calls take {}", span(self.row.driver_ns))?;
        if let Some(less) = self.saves.driver_ns {
            let than = match self.saves.time_than {
                "recorded" => "than as it was recorded",
                _ => "than with PyTorch's allocator",
            };
            let word = if less < 0 { "more" } else { "less" };
            write!(f, ", {} {word} {than}", span(less.unsigned_abs()))?;
        }
        writeln!(f, ".")
    }
}

impl OfConfidence {
    fn of(confidence: Confidence, iterations: usize) -> OfConfidence {
        let worst = |figure: fn(&Check) -> f64| {
            let figures = confidence.checks.iter().map(figure);
            figures.max_by(f64::total_cmp)
        };
        let (difference, regret) = (worst(Check::difference), worst(Check::regret));
        let sentence = sentence(&confidence, iterations, difference.zip(regret));
        OfConfidence {
            confidence,
            difference_percent: difference,
            regret_percent: regret,
            sentence,
        }
    }
}

fn sentence(confidence: &Confidence, iterations: usize, worst: Option<(f64, f64)>) -> String {
    let level = match confidence.level {
        Level::Sure => "Sure",
        Level::FairlySure => "Fairly sure",
        Level::Guess => "A guess",
    };
    let Some((difference, regret)) = worst else {
        let why = match confidence.parts {
            Parts::NoTime => "there was no time to try it on parts that it was not chosen by".to_string(),
            _ if iterations > 0 => format!("there is one recording, of {iterations} iterations"),
            _ => "there is one recording, and no iterations were found in it".to_string(),
        };
        return format!("{level}: {why}.");
    };
    let checks = &confidence.checks;
    let same = checks.iter().filter(|check| check.is_same()).count();
    let how = match confidence.parts {
        Parts::Recordings => format!(
            "chosen without one recording, the same is best for that one in {same} of {} cases",
            checks.len()
        ),
        _ if same > 0 => "chosen by the first half of the iterations, it is best in the second, too".to_string(),
        _ => {
            let names = checks.first().map(|check| (check.chosen.as_str(), check.best.as_str()));
            let (chosen, best) = names.unwrap_or_default();
            format!("the first half of the iterations would have {chosen}, the second {best}")
        }
    };
    format!(
        "{level}: {how}; what was chosen holds {regret:.1} % more than the best, and {difference:.1} % other than predicted."
    )
}


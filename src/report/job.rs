//! Compares recordings as the ranks of one job: the peaks, their times, and the outliers.

use std::fmt;

use serde::Serialize;

use super::build::Report;
use crate::output::escape::shown;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, percent, span};

/// Least share of the median by which the peak of an outlier differs.
const APART: f64 = 0.1;
/// Least multiple of the usual distance of ranks from the median.
const TIMES: f64 = 4.0;
/// Least bytes by which an outlier differs. Contexts and caches of libraries differ by as much.
const LEAST: u64 = 16 << 20;

/// The ranks of a job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Job {
    /// Each, in the order of their ranks.
    pub ranks: Vec<Rank>,
    /// Mean of the peaks, bytes.
    pub mean: u64,
    /// The highest peak over the mean; 1 is even.
    pub imbalance: f64,
    /// The rank that peaks highest: its index.
    pub highest: Option<usize>,
    /// The ranks that are unlike the others: their indices.
    pub outliers: Vec<usize>,
    /// The result in sentences.
    pub verdict: String,
}

/// One rank of a job, on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rank {
    /// Its number, or its host and process where it has none.
    pub name: String,
    /// Path of its recording.
    pub trace: String,
    /// Device ordinal.
    pub device: Option<u8>,
    /// The most that was live, of tensors if there are any, else of requested memory, bytes.
    pub peak: u64,
    /// When, ns since the first rank started.
    pub peak_ns: u64,
    /// The most that was held from the driver, bytes.
    pub reserved: u64,
    /// Live bytes at the end.
    pub end: u64,
    /// The findings: subcommands with the details.
    pub findings: Vec<&'static str>,
}

impl Job {
    /// Compares the reports of several ranks. `None` if they are of separate runs, or of one rank.
    pub fn of(reports: &[Report]) -> Option<Job> {
        if !is_one_job(reports) {
            return None;
        }
        let walls = reports.iter().map(|report| report.started_wall_ns);
        let start = walls.filter(|wall| *wall > 0).min().unwrap_or(0);
        let mut ranks: Vec<Rank> = reports
            .iter()
            .flat_map(|report| ranks_of(report, start))
            .collect();
        let number = |rank: &Rank| rank.name.parse::<u64>().unwrap_or(u64::MAX);
        ranks.sort_by(|a, b| (number(a), &a.name, a.device).cmp(&(number(b), &b.name, b.device)));
        let peaks: Vec<u64> = ranks.iter().map(|rank| rank.peak).collect();
        let sum = peaks
            .iter()
            .fold(0_u64, |sum, peak| sum.saturating_add(*peak));
        let mean = sum / (peaks.len() as u64).max(1);
        // The first rank of several with the same peak.
        let highest = (0..ranks.len()).rev().max_by_key(|index| peaks.get(*index));
        let top = highest.and_then(|index| peaks.get(index)).copied();
        let mut job = Job {
            mean,
            imbalance: if mean == 0 {
                1.0
            } else {
                top.unwrap_or(0) as f64 / mean as f64
            },
            highest,
            outliers: outliers(&peaks),
            ranks,
            verdict: String::new(),
        };
        job.verdict = job.sentence();
        Some(job)
    }

    fn sentence(&self) -> String {
        let Some(highest) = self.highest.and_then(|index| self.ranks.get(index)) else {
            return "No rank used device memory.".to_string();
        };
        let mut text = format!("{} ranks", self.ranks.len());
        if self.imbalance < 1.0 + APART / 2.0 {
            text.push_str(&format!(
                " peak alike, at {} in the mean; highest is {}, {}.",
                bytes(self.mean),
                highest.in_a_sentence(),
                bytes(highest.peak)
            ));
        } else {
            text.push_str(&format!(
                ": {} peaks highest, at {} after {}, {:.2} times the mean of {}.",
                highest.in_a_sentence(),
                bytes(highest.peak),
                span(highest.peak_ns),
                self.imbalance,
                bytes(self.mean)
            ));
        }
        for outlier in self
            .outliers
            .iter()
            .filter_map(|index| self.ranks.get(*index))
        {
            let others = self.ranks.iter().filter(|rank| *rank != outlier);
            let mut others: Vec<u64> = others.map(|rank| rank.peak).collect();
            let usual = median(&mut others);
            let (apart, sign) = if outlier.peak > usual {
                (outlier.peak - usual, "more")
            } else {
                (usual - outlier.peak, "less")
            };
            let mut name = outlier.in_a_sentence();
            name.replace_range(0..1, &name[0..1].to_ascii_uppercase());
            text.push_str(&format!(
                " {name} is unlike the others: {} {sign} than the median of them, {}.",
                bytes(apart),
                bytes(usual)
            ));
        }
        let said: Vec<&Rank> = (self.ranks.iter())
            .filter(|rank| !rank.findings.is_empty())
            .collect();
        if !said.is_empty() && said.len() < self.ranks.len() {
            let names: Vec<String> = said.iter().map(|rank| rank.in_a_sentence()).collect();
            text.push_str(&format!(" Only {} have findings.", names.join(", ")));
        }
        text
    }
}

impl Rank {
    fn in_a_sentence(&self) -> String {
        let is_number = self.name.bytes().all(|byte| byte.is_ascii_digit());
        if is_number {
            format!("rank {}", self.name)
        } else {
            format!("process {}", self.name)
        }
    }
}

/// True if all reports have a rank from their launcher, there are at least two ranks, and no rank
/// ran twice in sequence. Worker processes have the rank of the process that started them.
fn is_one_job(reports: &[Report]) -> bool {
    let span = |report: &Report| {
        let start = report.started_wall_ns;
        let rank = report.process.rank.clone();
        rank.map(|rank| (rank, start, start.saturating_add(report.summary.last_ns)))
    };
    let spans: Option<Vec<(String, u64, u64)>> = reports.iter().map(span).collect();
    let Some(mut spans) = spans else { return false };
    spans.sort_unstable();
    let is_again = |pair: &[(String, u64, u64)]| match pair {
        [(before, _, end), (rank, start, _)] => before == rank && start > end,
        _ => false,
    };
    let ran_twice = spans.windows(2).any(is_again);
    spans.dedup_by(|a, b| a.0 == b.0);
    spans.len() > 1 && !ran_twice
}

/// Returns a process on each of its devices, or one row without a device.
fn ranks_of(report: &Report, start: u64) -> Vec<Rank> {
    let process = &report.process;
    let name = process.rank.clone().unwrap_or_else(|| {
        let host = process.host.as_deref().unwrap_or("?");
        match process.pid {
            None if process.host.is_none() => report.trace.clone(),
            None => format!("{host}/?"),
            Some(pid) => format!("{host}/{pid}"),
        }
    });
    let later = report.started_wall_ns.saturating_sub(start);
    let mut kinds: Vec<&'static str> = report.findings.iter().map(|one| one.kind.name()).collect();
    kinds.dedup();
    let rank = |device: Option<&super::figures::DeviceFigures>| {
        let gauge = device.map(|device| match &device.tensors {
            Some(tensors) => tensors.tensors,
            None => device.requested,
        });
        Rank {
            name: name.clone(),
            trace: report.trace.clone(),
            device: device.and_then(|device| device.device),
            peak: gauge.map_or(0, |gauge| gauge.peak),
            peak_ns: gauge
                .and_then(|gauge| gauge.peak_ns)
                .unwrap_or(0)
                .saturating_add(later),
            reserved: device.map_or(0, |device| device.reserved.peak),
            end: gauge.map_or(0, |gauge| gauge.end),
            findings: kinds.clone(),
        }
    };
    let mut ranks: Vec<Rank> = report
        .summary
        .devices
        .iter()
        .map(|d| rank(Some(d)))
        .collect();
    if ranks.is_empty() {
        ranks.push(rank(None));
    }
    ranks
}

/// Returns the median; the mean of the middle two of an even number.
pub(super) fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(0);
    if values.len().is_multiple_of(2) {
        u64::midpoint(at(middle.saturating_sub(1)), at(middle))
    } else {
        at(middle)
    }
}

/// Indices of the peaks that are far from the median of the others, relative to the usual distance.
pub(super) fn outliers(peaks: &[u64]) -> Vec<usize> {
    // Of two ranks neither can be called the outlier.
    if peaks.len() < 3 {
        return Vec::new();
    }
    let is_far = |index: &usize| {
        let Some(peak) = peaks.get(*index) else {
            return false;
        };
        let others = (0..peaks.len()).filter(|other| other != index);
        let mut others: Vec<u64> = others.filter_map(|at| peaks.get(at)).copied().collect();
        let middle = median(&mut others);
        let mut off: Vec<u64> = others.iter().map(|other| other.abs_diff(middle)).collect();
        let usual = median(&mut off) as f64;
        let apart = peak.abs_diff(middle);
        apart >= LEAST && apart as f64 > (APART * middle as f64).max(TIMES * usual)
    };
    (0..peaks.len()).filter(is_far).collect()
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", shown(&self.verdict))?;
        let mut table = Table::new([
            ("rank", Align::Left),
            ("gpu", Align::Right),
            ("peak", Align::Right),
            ("of the mean", Align::Right),
            ("at", Align::Right),
            ("reserved", Align::Right),
            ("at the end", Align::Right),
            ("", Align::Left),
        ]);
        for (index, rank) in self.ranks.iter().enumerate() {
            let mut notes = Vec::new();
            if self.highest == Some(index) {
                notes.push("highest");
            }
            if self.outliers.contains(&index) {
                notes.push("unlike the others");
            }
            notes.extend(&rank.findings);
            table.row([
                rank.name.clone(),
                rank.device
                    .map_or("-".to_string(), |device| device.to_string()),
                bytes(rank.peak),
                percent(rank.peak as f64, self.mean as f64),
                span(rank.peak_ns),
                bytes(rank.reserved),
                bytes(rank.end),
                notes.join(", "),
            ]);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording;
    use crate::replay::planted::Planted;

    const GIB: u64 = 1 << 30;

    #[test]
    fn who_is_unlike_the_others() {
        assert_eq!(outliers(&[GIB, GIB, 2 * GIB, GIB]), [2]);
        assert_eq!(outliers(&[GIB, GIB, GIB / 2, GIB + 1]), [2]);
        assert_eq!(outliers(&[GIB, GIB, GIB, GIB + GIB / 20]), [0_usize; 0]);
        // An even slope, as with the stages of a pipeline, has no outlier.
        assert_eq!(
            outliers(&[4 * GIB, 5 * GIB, 6 * GIB, 7 * GIB]),
            [0_usize; 0]
        );
        assert_eq!(outliers(&[GIB, 5 * GIB]), [0_usize; 0]);
        assert_eq!(outliers(&[]), [0_usize; 0]);
        // Small differences are ignored.
        assert_eq!(outliers(&[0, 0, 0, 1 << 20]), [0_usize; 0]);
    }

    #[test]
    fn snapshots_that_are_called_by_their_ranks_are_one_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut reports = Vec::new();
        for rank in 0..4_u64 {
            let mut run = Planted::new(16 << 30);
            let kept = if rank == 2 { 40 } else { 0 };
            for _ in 0..20 {
                let batch = run.take("load", 0, 64 << 20).expect("memory");
                if kept > 0 {
                    run.take("remember", 0, kept << 20).expect("memory");
                }
                run.free(batch);
            }
            let path = folder.path().join(format!("rank{rank}_snapshot.pickle"));
            std::fs::write(&path, run.pickle()).expect("written");
            let recording = recording::open(&path).expect("a snapshot");
            reports.push(Report::of(&*recording, None));
        }
        let job = Job::of(&reports).expect("a job");
        assert_eq!((job.ranks.len(), &job.outliers[..]), (4, &[2][..]));
        let told = "Rank 2 is unlike the others: 800.0 MiB more";
        assert!(job.verdict.contains(told), "{}", job.verdict);
        // Without their ranks the same files are separate runs.
        for report in &mut reports {
            report.process.rank = None;
        }
        assert!(Job::of(&reports).is_none());
    }

    #[test]
    fn the_middle_of_some() {
        assert_eq!(median(&mut [3, 1, 2]), 2);
        assert_eq!(median(&mut [4, 1, 2, 3]), 2);
        assert_eq!(median(&mut []), 0);
    }
}

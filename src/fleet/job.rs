//! Answer about a job: its ranks and their outliers.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::figures::{OfFunction, OfPhase, Totals, functions, phases, totals};
use super::gather::{Gathered, Member, Unreadable};
use super::judge;
use super::outlier::{Kind, Outlier};
use super::summary::RankSummary;
use crate::output::answer::layer_name;
use crate::report::{Finding, FindingKind};
use crate::top::State;
use gpushim_trace::Layer;

#[cfg(test)]
mod tests;

/// A job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fleet {
    /// Its number or name, as its launcher or the user said.
    pub job: Option<String>,
    /// Number of ranks, as the launcher said.
    pub world: Option<u32>,
    /// Ranks without a file.
    pub missing: Vec<u32>,
    /// Files of which nothing could be read.
    pub unreadable: Vec<Unreadable>,
    /// Processes that are not among `ranks`: workers of a rank, and earlier runs of it.
    pub other_processes: usize,
    /// When the first rank started, ns since 1970.
    pub started_wall_ns: u64,
    /// When the last event of any rank was, ns since 1970.
    pub last_wall_ns: u64,
    /// Figures of all ranks.
    pub totals: Totals,
    /// The rank with the highest peak, empty if no rank is known.
    pub highest: String,
    /// The functions that held most at the peaks of all ranks together.
    pub functions: Vec<OfFunction>,
    /// The phases.
    pub phases: Vec<OfPhase>,
    /// Ranks that are unlike the others, the gravest first.
    pub outliers: Vec<Outlier>,
    /// Each rank, in order.
    pub ranks: Vec<RankRow>,
    /// The files of each rank, in the same order.
    #[serde(skip)]
    pub members: Vec<Member>,
}

/// One rank.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankRow {
    /// Its number, or its host and process where it has none.
    pub name: String,
    /// Its number.
    pub rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// The path of its trace, or of its summary where only that is there.
    pub file: String,
    /// State of the process: it runs, ended or died.
    pub state: State,
    /// Device ordinal of the device with the highest peak.
    pub device: Option<u8>,
    /// The most that was live, bytes.
    pub peak: u64,
    /// When, ns since it started.
    pub peak_ns: u64,
    /// Live at the end, bytes.
    pub end: u64,
    /// The most that was held from the driver, bytes.
    pub reserved: u64,
    /// Iterations.
    pub iterations: Option<u64>,
    /// Bytes by which an iteration raises what is live.
    pub per_iteration: Option<f64>,
    /// Median time of an iteration, ns.
    pub iteration_ns: Option<u64>,
    /// The kinds of outliers that it is.
    pub outlier: Vec<Kind>,
    /// The kinds of its findings, as its report has them.
    pub findings: Vec<String>,
    /// When it started, ns since the first rank did.
    pub started_ns: u64,
}

impl Fleet {
    /// Groups the processes by job. With `name`, only the job of that name is returned. Processes
    /// without a job from a launcher form one job with the name `name`.
    pub fn all(gathered: Gathered, name: Option<&str>) -> Vec<Fleet> {
        let mut jobs: BTreeMap<Option<String>, Vec<Member>> = BTreeMap::new();
        for member in gathered.members {
            let job = member.summary.process.job.clone();
            jobs.entry(job).or_default().push(member);
        }
        let mut unreadable = gathered.unreadable;
        let mut fleets = Vec::new();
        for (job, members) in jobs {
            let job = job.or_else(|| name.map(str::to_string));
            if name.is_none() || job.as_deref() == name {
                fleets.push(Fleet::of(job, members, std::mem::take(&mut unreadable)));
            }
        }
        if fleets.is_empty() && !unreadable.is_empty() {
            fleets.push(Fleet::of(name.map(str::to_string), Vec::new(), unreadable));
        }
        fleets
    }

    /// Builds the job of some processes.
    fn of(job: Option<String>, members: Vec<Member>, unreadable: Vec<Unreadable>) -> Fleet {
        let processes = members.len();
        let members = ranks_of(members);
        let summaries: Vec<&RankSummary> = members.iter().map(|member| &member.summary).collect();
        let (world, missing) = judge::missing(&summaries);
        let started = summaries.iter().map(|one| one.process.started_wall_ns);
        let started_wall_ns = started.filter(|wall| *wall > 0).min().unwrap_or(0);
        let last_wall_ns = summaries.iter().map(|one| one.last_wall_ns()).max();
        let mut fleet = Fleet {
            job,
            world,
            unreadable,
            other_processes: processes - members.len(),
            started_wall_ns,
            last_wall_ns: last_wall_ns.unwrap_or(0),
            totals: totals(&summaries),
            highest: String::new(),
            functions: functions(&summaries),
            phases: phases(&summaries),
            outliers: judge::outliers(&summaries),
            ranks: members
                .iter()
                .map(|member| row(member, started_wall_ns))
                .collect(),
            missing,
            members: Vec::new(),
        };
        fleet.members = members;
        fleet.highest = fleet
            .highest_row()
            .map_or(String::new(), |(_, row)| row.name.clone());
        fleet.settle();
        fleet
    }

    /// True if a rank is an outlier or is missing.
    pub fn is_found(&self) -> bool {
        !self.outliers.is_empty() || !self.missing.is_empty()
    }

    /// Returns the rank with the highest peak, with its index.
    pub fn highest_row(&self) -> Option<(usize, &RankRow)> {
        // The first rank of several with the same peak.
        let ranks = self.ranks.iter().enumerate().rev();
        ranks.max_by_key(|(_, row)| row.peak)
    }

    /// Returns the trace of the rank that stands out most, or else of the one with the highest
    /// peak.
    pub fn worst(&self) -> Option<&Path> {
        let outliers = self.outliers.iter().flat_map(|one| one.members.first());
        let highest = self.highest_row().map(|(index, _)| index);
        let mut members = outliers.copied().chain(highest);
        members.find_map(|index| self.trace(index))
    }

    /// Returns the trace of the rank at an index.
    pub fn trace(&self, index: usize) -> Option<&Path> {
        self.members.get(index)?.place.trace.as_deref()
    }

    /// Returns the finding of a rank that holds more than the others, for its report.
    pub fn finding_of(&self, trace: &Path) -> Option<Finding> {
        let index = (0..self.members.len()).find(|index| self.trace(*index) == Some(trace))?;
        let (summaries, row) = (self.summaries(), self.ranks.get(index)?);
        let mut outliers = judge::outliers(&summaries).into_iter();
        let is_its = |one: &Outlier| one.kind == Kind::Imbalance && one.members == [index];
        let one = outliers.find(is_its)?;
        if row.peak <= self.totals.peak.median {
            return None;
        }
        let of = &self.members.get(index)?.summary.main_device()?.of;
        let mut layers = [Layer::Tensor, Layer::Device].into_iter().map(layer_name);
        Some(Finding {
            kind: FindingKind::Imbalance,
            of: layers.find(|name| name == of)?,
            text: one.text,
            bytes: one.bytes,
            per_iteration: None,
            kept_by: None,
            site: None,
            sure: one.sure,
            why: one.why,
            fix: None,
            next: self.diff_of(index)?,
        })
    }

    /// Returns the command that compares a rank with the usual rank whose peak is nearest to the
    /// median.
    pub fn diff_of(&self, index: usize) -> Option<String> {
        let usual = self.ranks.iter().enumerate();
        let usual = usual.filter(|(_, row)| row.outlier.is_empty());
        let usual = usual.filter_map(|(at, row)| Some((row.peak, self.trace(at)?.display())));
        let median = self.totals.peak.median;
        let (_, usual) = usual.min_by_key(|(peak, _)| peak.abs_diff(median))?;
        Some(format!(
            "gpushim diff {usual} {}",
            self.trace(index)?.display()
        ))
    }

    fn summaries(&self) -> Vec<&RankSummary> {
        self.members.iter().map(|member| &member.summary).collect()
    }

    /// Merges outliers of the same kind by function, text or host. Then sets the names of their
    /// ranks, and the kinds of outliers in the rows of the ranks.
    fn settle(&mut self) {
        let mut all: Vec<(Option<String>, Outlier)> = Vec::new();
        for one in std::mem::take(&mut self.outliers) {
            let alike = match one.kind {
                Kind::OtherSettings => Some(one.text.clone()),
                Kind::Leak | Kind::OutOfMemory | Kind::Imbalance | Kind::OtherModel => {
                    one.site.as_ref().map(|site| site.short.clone())
                }
                // A node failure ends all ranks of the node.
                Kind::Died | Kind::Straggler => {
                    let row = one.members.first().and_then(|index| self.ranks.get(*index));
                    row.map(|row| row.host.clone())
                }
                Kind::Missing => None,
            };
            let known = all
                .iter_mut()
                .find(|(known, of)| of.kind == one.kind && alike.is_some() && *known == alike);
            match known {
                Some((_, known)) => known.members.extend(one.members),
                None => all.push((alike, one)),
            }
        }
        let mut all: Vec<Outlier> = all.into_iter().map(|(_, one)| one).collect();
        for one in &mut all {
            one.members.sort_unstable();
            for member in &one.members {
                if let Some(row) = self.ranks.get_mut(*member) {
                    one.ranks.push(row.name.clone());
                    row.outlier.push(one.kind);
                }
            }
        }
        if !self.missing.is_empty() {
            all.push(of_missing(&self.missing, self.world));
            all.sort_by_key(|one| one.kind);
        }
        self.outliers = all;
    }
}

/// Returns the ranks without a file as an outlier.
fn of_missing(missing: &[u32], world: Option<u32>) -> Outlier {
    let text = match world {
        Some(world) => format!(
            "The launcher started {world} ranks, of which {} have no file.",
            missing.len()
        ),
        None => format!(
            "{} ranks below the highest one have no file.",
            missing.len()
        ),
    };
    Outlier {
        ranks: missing.iter().map(u32::to_string).collect(),
        members: Vec::new(),
        ..Outlier::of(
            Kind::Missing,
            0,
            text,
            match world {
                Some(_) => (true, "the launcher told the others how many there are"),
                None => (false, "no launcher said how many there are"),
            },
        )
    }
}

/// Selects one process for each rank: of the processes of the newest run, the one with the highest
/// peak. Worker processes have the rank of the process that started them. Processes without a rank
/// are kept only if no process has a rank; then each counts as a rank.
fn ranks_of(members: Vec<Member>) -> Vec<Member> {
    let mut by_rank: BTreeMap<u32, Vec<Member>> = BTreeMap::new();
    let mut others = Vec::new();
    for member in members {
        match member.summary.process.rank {
            Some(rank) => by_rank.entry(rank).or_default().push(member),
            None => others.push(member),
        }
    }
    if by_rank.is_empty() {
        return others;
    }
    let newest = |members: Vec<Member>| {
        let start = |member: &Member| member.summary.process.started_wall_ns;
        let last = members.iter().map(start).max().unwrap_or(0);
        // A process that ended before the start of the newest one belongs to an earlier run.
        let now = members
            .into_iter()
            .filter(|member| member.summary.last_wall_ns() >= last);
        now.max_by_key(|member| member.summary.peak())
    };
    by_rank.into_values().filter_map(newest).collect()
}

fn row(member: &Member, started: u64) -> RankRow {
    let summary = &member.summary;
    let (process, device) = (&summary.process, summary.main_device());
    let file = member
        .place
        .trace
        .as_ref()
        .or(member.place.summary.as_ref());
    let name = match (process.rank, process.pid) {
        (Some(rank), _) => rank.to_string(),
        (None, Some(pid)) => format!("{}/{pid}", process.host),
        (None, None) => summary.trace.clone(),
    };
    let iterations = summary.iterations.as_ref();
    RankRow {
        name,
        rank: process.rank,
        host: process.host.clone(),
        file: file.map_or(String::new(), |file| file.display().to_string()),
        state: summary.end.state,
        device: device.and_then(|device| device.device),
        peak: device.map_or(0, |device| device.peak),
        peak_ns: device.map_or(0, |device| device.peak_ns),
        end: device.map_or(0, |device| device.end),
        reserved: device.map_or(0, |device| device.reserved_peak),
        iterations: iterations.map(|of| of.count),
        per_iteration: iterations.map(|of| of.per_iteration),
        iteration_ns: iterations.map(|of| of.median_ns),
        outlier: Vec::new(),
        findings: kinds_of(&summary.findings),
        started_ns: process.started_wall_ns.saturating_sub(started),
    }
}

fn kinds_of(findings: &[super::summary::Finding]) -> Vec<String> {
    let mut kinds: Vec<String> = findings.iter().map(|one| one.kind.clone()).collect();
    kinds.dedup();
    kinds
}

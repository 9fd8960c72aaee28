//! Figures and outliers of the ranks of a job.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::gather::{Gathered, Member, Unreadable};
use super::judge;
use super::outlier::{Kind, Outlier};
use super::summary::{OverTime, RankSummary};
use crate::top::State;

/// Most functions in the list of a job.
const FUNCTIONS: usize = 10;

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

/// Figures of all ranks.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Totals {
    /// Hosts.
    pub hosts: usize,
    /// Ranks that run, ended or died, and ranks in an unknown state.
    pub running: usize,
    /// Ranks that noted their end.
    pub ended: usize,
    /// Ranks whose process is gone without a note.
    pub died: usize,
    /// Peaks, bytes.
    pub peak: Spread,
    /// Most bytes held from the driver.
    pub reserved: Spread,
    /// Iterations.
    pub iterations: Spread,
    /// Median time of an iteration, ns.
    pub iteration_ns: Spread,
    /// Events that were lost.
    pub events_lost: u64,
    /// Requests that ran out of memory.
    pub out_of_memory: u64,
}

/// A quantity over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spread {
    /// Of all ranks together.
    pub sum: u64,
    /// The least of any.
    pub least: u64,
    /// A tenth of the ranks has less.
    pub p10: u64,
    /// The middle one.
    pub median: u64,
    /// A tenth has more.
    pub p90: u64,
    /// The most of any.
    pub most: u64,
}

impl Spread {
    /// Computes the figures of some values; all are 0 if there are no values.
    pub fn of(values: impl Iterator<Item = u64>) -> Spread {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        let last = values.len().saturating_sub(1);
        let at = |tenths: usize| values.get(last * tenths / 10).copied().unwrap_or(0);
        Spread {
            sum: values
                .iter()
                .fold(0, |sum, value| sum.saturating_add(*value)),
            least: at(0),
            p10: at(1),
            median: at(5),
            p90: at(9),
            most: at(10),
        }
    }
}

/// Memory of a function at the peaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OfFunction {
    /// The function with its place, empty for blocks without a stack.
    pub function: String,
    /// Bytes, of all ranks together.
    pub bytes: u64,
    /// Ranks among whose first functions it is.
    pub ranks: usize,
}

/// A phase over all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OfPhase {
    /// Its name.
    pub name: String,
    /// The most that was live in it, bytes.
    pub peak: Spread,
    /// The rank with the highest peak.
    pub highest: String,
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
    /// When it started, ns since the first rank did.
    pub started_ns: u64,
    /// Live bytes of the rank over time.
    #[serde(skip)]
    pub over_time: OverTime,
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
        fleet.settle();
        fleet
    }

    /// True if a rank is an outlier or is missing.
    pub fn is_found(&self) -> bool {
        !self.outliers.is_empty() || !self.missing.is_empty()
    }

    /// Merges outliers of the same kind by function, text or host. Then sets the names of their
    /// ranks, and the kinds of outliers in the rows of the ranks.
    fn settle(&mut self) {
        let mut all: Vec<Outlier> = Vec::new();
        for one in std::mem::take(&mut self.outliers) {
            let function = |of: &Outlier| of.site.as_ref().map(|site| site.short.clone());
            let host = |of: &Outlier| {
                let row = of.members.first().and_then(|index| self.ranks.get(*index));
                row.map(|row| row.host.clone())
            };
            let is_same = |known: &&mut Outlier| {
                known.kind == one.kind
                    && match one.kind {
                        Kind::OtherSettings => known.text == one.text,
                        Kind::Leak | Kind::OutOfMemory | Kind::Imbalance | Kind::OtherModel => {
                            function(known).is_some() && function(known) == function(&one)
                        }
                        // A node failure ends all ranks of the node.
                        Kind::Died | Kind::Straggler => host(known) == host(&one),
                        Kind::Missing => false,
                    }
            };
            match all.iter_mut().find(is_same) {
                Some(known) => known.members.extend(one.members),
                None => all.push(one),
            }
        }
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
        started_ns: process.started_wall_ns.saturating_sub(started),
        over_time: summary.over_time.clone(),
    }
}

fn totals(ranks: &[&RankSummary]) -> Totals {
    let hosts: BTreeSet<&str> = ranks
        .iter()
        .map(|rank| rank.process.host.as_str())
        .collect();
    let of = |state| ranks.iter().filter(|rank| rank.end.state == state).count();
    let iterations = || ranks.iter().filter_map(|rank| rank.iterations.as_ref());
    let sum = |of: fn(&RankSummary) -> u64| {
        let all = ranks.iter().map(|rank| of(rank));
        all.fold(0_u64, u64::saturating_add)
    };
    Totals {
        hosts: hosts.len(),
        running: of(State::Running),
        ended: of(State::Ended),
        died: of(State::Died),
        peak: Spread::of(ranks.iter().map(|rank| rank.peak())),
        reserved: Spread::of(
            (ranks.iter()).map(|rank| rank.main_device().map_or(0, |of| of.reserved_peak)),
        ),
        iterations: Spread::of(iterations().map(|of| of.count)),
        iteration_ns: Spread::of(iterations().map(|of| of.median_ns)),
        events_lost: sum(|rank| rank.events.lost),
        out_of_memory: sum(|rank| rank.out_of_memory),
    }
}

fn functions(ranks: &[&RankSummary]) -> Vec<OfFunction> {
    let mut all: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    for rank in ranks {
        for holder in rank.main_device().map_or(&[][..], |device| &device.holders) {
            let of = all.entry(&holder.site.function).or_default();
            of.0 = of.0.saturating_add(holder.bytes);
            of.1 += 1;
        }
    }
    let of = |(function, (bytes, ranks)): (&str, (u64, usize))| OfFunction {
        function: function.to_string(),
        bytes,
        ranks,
    };
    let mut all: Vec<OfFunction> = all.into_iter().map(of).collect();
    all.sort_by_key(|of| std::cmp::Reverse(of.bytes));
    all.truncate(FUNCTIONS);
    all
}

fn phases(ranks: &[&RankSummary]) -> Vec<OfPhase> {
    let mut names: Vec<&str> = Vec::new();
    let mut peaks: BTreeMap<&str, Vec<(u64, usize)>> = BTreeMap::new();
    for (index, rank) in ranks.iter().enumerate() {
        for phase in &rank.phases {
            if !peaks.contains_key(phase.name.as_str()) {
                names.push(&phase.name);
            }
            let of = peaks.entry(&phase.name).or_default();
            of.push((phase.peak, index));
        }
    }
    let of = |name: &str| {
        let peaks = peaks.get(name).map_or(&[][..], Vec::as_slice);
        // The first rank of several with the same peak.
        let highest = peaks.iter().rev().max_by_key(|(peak, _)| *peak);
        let highest = highest.and_then(|(_, index)| ranks.get(*index));
        OfPhase {
            name: name.to_string(),
            peak: Spread::of(peaks.iter().map(|(peak, _)| *peak)),
            highest: highest
                .and_then(|rank| rank.process.rank)
                .map_or(String::new(), |rank| rank.to_string()),
        }
    };
    names.into_iter().map(of).collect()
}

//! Finding of a rank that holds more than the others of its job.

use super::build::Report;
use super::figures::DeviceFigures;
use super::findings::{Finding, Kind};
use super::job::{Job, median, outliers};
use super::overview::figures_of;
use super::siblings::Sibling;
use crate::output::answer::layer_name;
use crate::output::units::{bytes, percent};
use crate::recording;
use gpushim_trace::Layer;

/// Least share by which a peak exceeds the median of the others.
const SHARE: f64 = 0.1;
/// Least bytes by which a peak exceeds the median. Contexts, caches of libraries, and logging on
/// the first rank differ by less.
const LEAST: u64 = 64 << 20;
/// Most events of the other ranks' traces that are read to compare peaks.
const EVENTS: u64 = 2 << 20;

/// Peak of a rank, on the device where it is highest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RankPeak {
    name: String,
    trace: String,
    of: &'static str,
    peak: u64,
}

/// Adds the finding to the report of the rank that holds more than the others of its job.
pub fn of_job(job: &Job, reports: &mut [Report]) {
    let ranks = reports.iter().filter_map(|report| {
        let name = report.process.rank.as_deref()?;
        of_devices(name, &report.trace, &report.summary.devices)
    });
    let found = if job.ranks.len() > 1 {
        find(ranks.collect())
    } else {
        None
    };
    if let Some((trace, finding)) = found
        && let Some(report) = reports.iter_mut().find(|report| report.trace == trace)
    {
        add(report, finding);
    }
}

/// Adds the finding to a report if its rank holds more than the ranks with traces beside it.
pub fn of_siblings(siblings: &[Sibling], report: &mut Report) {
    let own = report
        .process
        .rank
        .as_deref()
        .and_then(|name| of_devices(name, &report.trace, &report.summary.devices));
    let Some(own) = own.filter(|own| own.peak >= LEAST) else {
        return;
    };
    let mut ranks = vec![own];
    let mut events = 0_u64;
    for sibling in siblings {
        let Ok(other) = recording::open(&sibling.path) else {
            return;
        };
        events = events.saturating_add(other.coverage().readable);
        if events > EVENTS {
            return;
        }
        let trace = sibling.path.display().to_string();
        let devices = figures_of(&*other).devices;
        ranks.extend(of_devices(&sibling.rank.to_string(), &trace, &devices));
    }
    if let Some((trace, finding)) = find(ranks)
        && trace == report.trace
    {
        add(report, finding);
    }
}

fn add(report: &mut Report, finding: Finding) {
    report.findings.push(finding);
    report.findings.sort_by_key(Finding::rank);
}

fn of_devices(name: &str, trace: &str, devices: &[DeviceFigures]) -> Option<RankPeak> {
    let peaks = devices.iter().map(|device| match &device.tensors {
        Some(tensors) => (tensors.tensors.peak, layer_name(Layer::Tensor)),
        None => (device.requested.peak, layer_name(Layer::Device)),
    });
    let (peak, of) = peaks.max()?;
    Some(RankPeak {
        name: name.to_string(),
        trace: trace.to_string(),
        of,
        peak,
    })
}

/// Makes the finding, and returns it with the trace of its rank.
fn find(mut ranks: Vec<RankPeak>) -> Option<(String, Finding)> {
    // A worker has the rank of the process that started it.
    ranks.sort_by(|a, b| (&a.name, b.peak).cmp(&(&b.name, a.peak)));
    ranks.dedup_by(|later, first| later.name == first.name);
    let peaks: Vec<u64> = ranks.iter().map(|rank| rank.peak).collect();
    let (at, highest) = (ranks.iter().enumerate()).max_by_key(|(_, rank)| rank.peak)?;
    let others = ranks.iter().filter(|rank| *rank != highest);
    let others: Vec<&RankPeak> = others.collect();
    // An even slope, as with the stages of a pipeline, has no outlier.
    let is_alone = match &others[..] {
        [] => false,
        [_] => true,
        _ => outliers(&peaks).contains(&at),
    };
    let is_alike = others.iter().all(|rank| rank.of == highest.of);
    let usual = median(&mut others.iter().map(|rank| rank.peak).collect::<Vec<_>>());
    let more = highest.peak.saturating_sub(usual);
    if !is_alone || !is_alike || more < LEAST || (more as f64) < SHARE * usual as f64 || usual == 0
    {
        return None;
    }
    let nearest = (others.iter()).min_by_key(|rank| rank.peak.abs_diff(usual))?;
    let than = match &others[..] {
        [other] => format!("rank {}", other.name),
        _ => format!("the median of the other {} ranks", others.len()),
    };
    let finding = Finding {
        kind: Kind::Imbalance,
        of: highest.of,
        text: format!(
            "Rank {} holds {} more at its peak than {than}: {} against {}.",
            highest.name,
            percent(more as f64, usual as f64),
            bytes(highest.peak),
            bytes(usual)
        ),
        bytes: more,
        per_iteration: None,
        kept_by: None,
        site: None,
        sure: false,
        why: "the peaks differ, which may be by design: stages of a pipeline, a rank that evaluates or saves".to_string(),
        fix: None,
        next: format!("gpushim diff {} {}", nearest.trace, highest.trace),
    };
    Some((highest.trace.clone(), finding))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(peaks: &[u64]) -> Option<Finding> {
        let rank = |(rank, mib): (usize, &u64)| RankPeak {
            name: rank.to_string(),
            trace: format!("rank{rank}.trace"),
            of: "tensors",
            peak: mib << 20,
        };
        let (trace, finding) = find(peaks.iter().enumerate().map(rank).collect())?;
        assert!(finding.next.ends_with(&format!(" {trace}")));
        Some(finding)
    }

    #[test]
    fn a_rank_that_holds_more() {
        let finding = found(&[1000, 1010, 1000, 1310]).unwrap();
        assert_eq!(
            finding.text,
            "Rank 3 holds 31.0 % more at its peak than the median of the other 3 ranks: 1.3 GiB against 1000.0 MiB."
        );
        assert_eq!(finding.bytes, 310 << 20);
        assert_eq!(finding.next, "gpushim diff rank0.trace rank3.trace");
        assert!(!finding.sure && !finding.kind.is_fault());
        let of_two = found(&[1500, 1000]).unwrap();
        assert_eq!(
            of_two.text,
            "Rank 0 holds 50.0 % more at its peak than rank 1: 1.5 GiB against 1000.0 MiB."
        );
    }

    #[test]
    fn what_is_no_imbalance() {
        // In this order: alike; less than a tenth; less than 64 MiB; the stages of a pipeline; one
        // that holds less; one rank; none.
        for peaks in [
            &[1000, 1000, 1000, 1000][..],
            &[1000, 1000, 1000, 1090],
            &[100, 100, 100, 160],
            &[1000, 1250, 1500, 1750],
            &[1000, 1000, 1000, 300],
            &[1000],
            &[],
        ] {
            assert_eq!(found(peaks), None, "{peaks:?}");
        }
    }

    #[test]
    fn a_worker_is_of_the_rank_that_started_it() {
        let peak = |name: &str, trace: &str, mib: u64| RankPeak {
            name: name.to_string(),
            trace: trace.to_string(),
            of: "tensors",
            peak: mib << 20,
        };
        let ranks = vec![
            peak("0", "a", 900),
            peak("0", "worker", 10),
            peak("1", "b", 905),
        ];
        assert_eq!(find(ranks), None);
    }
}

//! Tests of jobs with planted peaks.

use super::*;
use crate::fleet::Place;
use crate::fleet::summary::Device;

/// A job of processes with these ranks, kinds of memory, and peaks in MiB.
fn job_of(processes: &[(u32, &str, u64)]) -> Fleet {
    let member = |(at, (rank, of, mib)): (usize, &(u32, &str, u64))| {
        let mut member = Member {
            place: Place::of(format!("{at}.trace").into()),
            summary: RankSummary::default(),
        };
        member.summary.process.rank = Some(*rank);
        member.summary.devices.push(Device {
            of: of.to_string(),
            peak: mib << 20,
            ..Device::default()
        });
        member
    };
    let members = processes.iter().enumerate().map(member).collect();
    Fleet::of(None, members, Vec::new())
}

fn alike(peaks: &[u64]) -> Fleet {
    let ranks = (0..).zip(peaks);
    let ranks: Vec<_> = ranks.map(|(rank, mib)| (rank, "tensors", *mib)).collect();
    job_of(&ranks)
}

/// The ranks with a finding in their reports.
fn found(job: &Fleet) -> Vec<Finding> {
    let traces = (0..job.members.len()).filter_map(|index| job.trace(index));
    traces.filter_map(|trace| job.finding_of(trace)).collect()
}

#[test]
fn a_rank_that_holds_more() {
    let job = alike(&[1000, 1010, 1000, 1310]);
    let [finding] = &found(&job)[..] else {
        panic!("{:?}", found(&job))
    };
    assert_eq!(
        finding.text,
        "The peak is 1.3 GiB, 31.0 % more than the usual 1000.0 MiB of the other ranks."
    );
    assert_eq!(finding.bytes, 310 << 20);
    assert_eq!(finding.next, "gpushim diff 0.trace 3.trace");
    assert!(!finding.sure && !finding.kind.is_fault());
    assert_eq!(
        (job.highest.as_str(), &job.outliers[0].ranks[..]),
        ("3", &["3".to_string()][..])
    );
    assert_eq!(job.worst(), Some(Path::new("3.trace")));
    // Of small peaks it must be twice the usual one.
    let texts = found(&alike(&[20, 20, 76, 20]))
        .into_iter()
        .map(|one| one.text);
    assert_eq!(
        texts.collect::<Vec<_>>(),
        ["The peak is 76.0 MiB, 280.0 % more than the usual 20.0 MiB of the other ranks."]
    );
}

#[test]
fn what_is_no_imbalance() {
    // In this order: alike; less than a tenth; less than 64 MiB; twice, and less than
    // 16 MiB; the stages of a pipeline; one
    // of two; one rank; none.
    for peaks in [
        &[1000, 1000, 1000, 1000][..],
        &[1000, 1000, 1000, 1090],
        &[100, 100, 100, 160],
        &[5, 5, 5, 20],
        &[1000, 1250, 1500, 1750],
        &[1500, 1000],
        &[1000],
        &[],
    ] {
        let job = alike(peaks);
        assert_eq!((job.outliers.len(), found(&job)), (0, vec![]), "{peaks:?}");
    }
    // One that holds less is an outlier of the job, and its own report has no finding.
    let job = alike(&[1000, 1000, 1000, 300]);
    assert_eq!((job.outliers.len(), found(&job)), (1, vec![]));
    // Tensors and device memory cannot be compared.
    let three = [0, 1, 2].map(|rank| (rank, "tensors", 1000));
    let job = job_of(&[&three[..], &[(3, "device memory", 2000)]].concat());
    assert_eq!((job.outliers.len(), found(&job)), (0, vec![]));
}

#[test]
fn a_worker_is_of_the_rank_that_started_it() {
    let job = job_of(&[(0, "tensors", 900), (0, "tensors", 10), (1, "tensors", 905)]);
    assert_eq!((job.ranks.len(), job.other_processes), (2, 1));
    assert_eq!((job.outliers.len(), found(&job)), (0, vec![]));
    let text = job.verdict();
    assert!(text.contains("1 more recording is left out"), "{text}");
}

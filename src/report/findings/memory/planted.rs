//! Runs that reserve more than they use, and similar runs with another cause. Each fix must fit the
//! cause and have its stated effect.

use crate::ledger::Focus;
use crate::output::units::bytes;
use crate::recording::Snapshot;
use crate::replay::planted::Planted;
use crate::replay::{Policy, ReplayDevice, run};
use crate::report::Report;
use crate::report::findings::{Finding, Kind};
use crate::requests::Requests;

const MIB: u64 = 1 << 20;

fn found(snapshot: &Snapshot) -> Vec<Finding> {
    let report = Report::of(snapshot, None);
    let kinds = [Kind::Unused, Kind::Fragmentation];
    let all = report.findings.into_iter();
    all.filter(|one| kinds.contains(&one.kind)).collect()
}

/// Returns the only finding and its fix.
fn finding(snapshot: &Snapshot) -> (Finding, String) {
    let mut all = found(snapshot);
    assert_eq!(all.len(), 1, "{all:#?}");
    let one = all.remove(0);
    let fix = one.fix.clone().unwrap_or_default();
    (one, fix)
}

/// Bytes that a replay of a snapshot's requests reserves, after a change of the requests.
fn reserved(snapshot: &Snapshot, policy: &str, change: fn(&Requests) -> Requests) -> u64 {
    let all = Requests::of(snapshot, Focus::of(snapshot, None));
    let requests = change(&all[&0]);
    let policy: Policy = policy.parse().expect("a policy");
    let mut allocator = policy.build(&ReplayDevice::default(), &requests);
    run(&requests, &mut *allocator).peak_reserved
}

fn begun(base: u64) -> Planted {
    let mut run = Planted::new(64 << 30);
    run.take("load", 0, base * MIB).expect("memory");
    run
}

/// Makes a run whose weights are allocated on another stream. Each is in use until `late` others
/// were allocated.
fn fetched(late: usize) -> Snapshot {
    let mut run = begun(900);
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..40 {
        let weight = run.take("fetch", 7, 64 * MIB).expect("memory");
        run.drop_early(weight);
        waiting.push_back(weight);
        if waiting.len() > late {
            run.is_done(waiting.pop_front().expect("one"));
        }
    }
    run.snapshot()
}

#[test]
fn freed_blocks_that_wait_for_a_stream() {
    let late = fetched(8);
    let (one, fix) = finding(&late);
    assert!(one.text.contains("record_stream"), "{one:#?}");
    let site = one.site.expect("the place").in_a_sentence();
    assert!(site.contains("fetch"), "{site}");
    let would = reserved(&late, "torch", Requests::without_waiting);
    assert_eq!(would, 964 * MIB);
    let effect = format!("{} would be reserved, 512.0 MiB less", bytes(would));
    assert!(
        fix.contains("two buffers") && fix.contains(&effect),
        "{fix}"
    );
    // The same run, but the stream completes at once.
    assert_eq!(found(&fetched(0)), []);
}

/// Makes a run with work on several streams in turn. `more` is the growth of the block after every
/// third turn, MiB.
fn in_turn(streams: u64, more: u64) -> Snapshot {
    let mut run = begun(300);
    for turn in 0..18 {
        let size = 200 + more * (turn / 3);
        let block = run
            .take("work", turn % streams, size * MIB)
            .expect("memory");
        run.free(block);
    }
    run.snapshot()
}

#[test]
fn streams_that_have_caches_of_their_own() {
    let several = in_turn(6, 0);
    let (one, fix) = finding(&several);
    assert!(one.text.contains("Each stream"), "{one:#?}");
    let would = reserved(&several, "torch", Requests::on_one_stream);
    let effect = format!("{} would be reserved, 1000.0 MiB less", bytes(would));
    assert!(fix.contains("one stream") && fix.contains(&effect), "{fix}");
    // One stream with growing blocks, which fit into no free segment.
    let growing = in_turn(1, 30);
    let (one, fix) = finding(&growing);
    assert!(
        !one.text.contains("stream") && !fix.contains("one stream"),
        "{one:#?}"
    );
    let would = reserved(&growing, "torch-expandable", Requests::clone);
    assert!(would < reserved(&growing, "torch", Requests::clone));
    let effect = format!(
        "expandable_segments:True would have reserved {}",
        bytes(would)
    );
    assert!(fix.contains(&effect), "{fix}");
    // All segments that are needed exist from the first turn.
    assert_eq!(found(&in_turn(1, 0)), []);
}

#[test]
fn expandable_segments_are_not_advised_where_they_reserve_as_much() {
    let mut run = begun(10);
    let rests: Vec<_> = (0..20).map(|_| run.pin(0, 62 * MIB)).collect();
    rests.into_iter().for_each(|rest| run.free(rest));
    run.take("evaluate", 0, 600 * MIB).expect("memory");
    let pinned = run.snapshot();
    let (one, fix) = finding(&pinned);
    assert_eq!(one.kind, Kind::Fragmentation);
    let of = |policy| reserved(&pinned, policy, Requests::clone);
    assert!(of("torch-expandable") + 200 * MIB > of("torch"));
    assert!(!fix.contains("expandable_segments"), "{fix}");
    let effect = format!(
        "GPUSHIM_TAKEOVER=torch would have reserved {}",
        bytes(of("vmm"))
    );
    assert!(fix.contains(&effect), "{fix}");
}

#[test]
fn the_moment_is_the_one_at_which_most_is_in_use() {
    // Memory that is reserved late, when little is in use, is no finding.
    let mut run = begun(100);
    let full = run.take("train", 0, 2000 * MIB).expect("memory");
    run.free(full);
    for _ in 0..100 {
        run.take("statistics", 0, 900 << 10).expect("memory");
    }
    assert_eq!(found(&run.snapshot()), []);
}

#[test]
fn a_cache_is_given_back_where_whole_segments_are_free() {
    let one_moment = |pinned: bool| {
        let mut run = begun(10);
        let mut blocks: Vec<_> = (0..6)
            .map(|_| match pinned {
                true => run.pin(0, 200 * MIB),
                false => run.take("train", 0, 200 * MIB).expect("memory"),
            })
            .collect();
        blocks.drain(..).for_each(|block| run.free(block));
        run.forget();
        run.snapshot()
    };
    let (_, fix) = finding(&one_moment(false));
    assert_eq!(fix, "torch.cuda.empty_cache() gives 1.2 GiB of it back");
    let all = found(&one_moment(true));
    assert!(all.iter().all(|one| one.fix.is_none()), "{all:#?}");
}

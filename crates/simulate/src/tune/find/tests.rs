use gpushim_analysis::ledger::Focus;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::replay::run;
use crate::tune::{Level, Parts, Than};
use gpushim_alloc as alloc;
use gpushim_analysis::requests::made::{Shape, generate};
use gpushim_config::Config;
use gpushim_recording as recording;

mod wrapped;

const MIB: u64 = 1 << 20;
/// Duration of each step, ns.
const STEP: u64 = 100_000_000;

const OPTIONS: Options = Options {
    within: 2.0,
    limit: None,
    budget: Duration::from_secs(3600),
    threads: 2,
};

/// Makes a run from steps on a stream; the stream `-` stands for calls without one. Each step
/// allocates its sizes in order and frees them in reverse order. The blocks of `kept` are allocated
/// before the first step and stay live.
fn steps(kept: &[u64], steps: &[Vec<u64>], stream: &str) -> Recorded {
    let mut text = String::from("op,ptr,size,stream,thread,time_ns\n");
    let mut next = 1 << 40;
    let mut allocate = |text: &mut String, bytes: u64, ns: u64| {
        next += 1 << 32;
        writeln!(text, "alloc,{next:#x},{bytes},{stream},1,{ns}").unwrap();
        next
    };
    for bytes in kept {
        allocate(&mut text, *bytes, 0);
    }
    for (number, sizes) in steps.iter().enumerate() {
        let ns = (number as u64 + 1) * STEP;
        let blocks: Vec<u64> = (sizes.iter())
            .map(|bytes| allocate(&mut text, *bytes, ns))
            .collect();
        for (block, bytes) in blocks.iter().zip(sizes).rev() {
            writeln!(text, "free,{block:#x},{bytes},{stream},1,{}", ns + STEP / 2).unwrap();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("requests.csv");
    std::fs::write(&path, text).unwrap();
    let recording = recording::open(&path).unwrap();
    let mut recorded = Recorded::of(&*recording, Focus::of(&*recording, None), None);
    recorded.starts = (0..=steps.len() as u64).map(|at| (at + 1) * STEP).collect();
    recorded.is_sure = true;
    recorded
}

fn quietly(recorded: &[Recorded], options: &Options) -> Tuned {
    tune(recorded, options, &|_| {})
}

fn advised(tuned: &Tuned) -> &Tried {
    &tuned.tried[tuned.advice.as_ref().expect("advice").chosen]
}

fn lines(tuned: &Tuned) -> String {
    tuned.advice.as_ref().expect("advice").environment.line()
}

/// Makes sizes that change from step to step, in multiples of a unit. A free block hardly ever
/// fits.
fn varying(unit: u64, count: u64) -> Vec<Vec<u64>> {
    let size = |step: u64, at: u64| (1 + (step * 7 + at * 5) % 6) * unit;
    (0..count)
        .map(|step| (0..6).map(|at| size(step, at)).collect())
        .collect()
}

#[test]
fn larger_pages_where_they_waste_nothing() {
    // Every size is a multiple of 64 MiB, so the largest pages hold no more and cost least.
    let recorded = steps(&[64 * MIB], &varying(64 * MIB, 20), "0");
    let tuned = quietly(&[recorded], &OPTIONS);
    let best = advised(&tuned);
    assert_eq!(best.candidate.policy.name(), "vmm");
    assert_eq!(best.candidate.page, 64 * MIB, "{best:?}");
    let small = |one: &&Tried| one.candidate == Candidate::of(alloc::Policy::Vmm);
    let small = tuned.tried.iter().find(small).expect("small pages");
    assert!(best.sum.peak_reserved <= small.sum.peak_reserved);
    assert!(best.sum.driver_ns * 4 < small.sum.driver_ns);
    assert_eq!(lines(&tuned), "GPUSHIM_PAGE=64M");
}

#[test]
fn small_pages_where_large_ones_waste() {
    let kept = [30 * MIB, 3 * MIB];
    let steps = steps(&kept, &vec![vec![5 * MIB, 2 * MIB, MIB]; 20], "0");
    let tuned = quietly(&[steps], &OPTIONS);
    // There are no driver calls after the start, so the time does not matter.
    assert_eq!(advised(&tuned).sum.steady_ns, 0);
    assert_eq!(lines(&tuned), "");
    assert_eq!(tuned.not_tried, 0);
}

#[test]
fn a_limit_that_only_pages_keep() {
    // Without pages each block takes two of the driver's pages.
    let sizes = vec![2 * MIB + 4096; 100];
    let recorded = steps(&[], &vec![sizes; 6], "-");
    let options = Options {
        limit: Some(206 * MIB),
        ..OPTIONS
    };
    let tuned = quietly(std::slice::from_ref(&recorded), &options);
    let fits = tuned.tried.iter().filter(|one| one.sum.fits());
    assert!(fits.clone().count() > 0);
    assert!(
        fits.into_iter()
            .all(|one| one.candidate.policy.name() == "vmm")
    );
    // The policy is the default.
    assert_eq!(advised(&tuned).candidate.policy.name(), "vmm");
    assert!(
        !lines(&tuned).contains("GPUSHIM_POLICY"),
        "{}",
        lines(&tuned)
    );
    let smallest = tuned.advice.as_ref().unwrap().smallest_limit.expect("one");
    assert!((200 * MIB..=206 * MIB).contains(&smallest), "{smallest}");

    // Less than the live bytes: nothing fits.
    let options = Options {
        limit: Some(150 * MIB),
        ..OPTIONS
    };
    let tuned = quietly(&[recorded], &options);
    assert!(tuned.advice.is_none() && tuned.front.is_empty());
    let (at, needs) = tuned.closest.expect("the closest");
    assert!(!tuned.tried[at].sum.fits());
    assert!(needs.is_some_and(|needs| needs > 200 * MIB), "{needs:?}");
}

#[test]
fn the_smallest_limit_is_enough_and_hardly_less_is_not() {
    let recorded = steps(&[64 * MIB], &varying(3 * MIB, 20), "0");
    let tuned = quietly(std::slice::from_ref(&recorded), &OPTIONS);
    let limit = tuned.advice.as_ref().unwrap().smallest_limit.expect("one");
    let refused = |limit| {
        let job = advised(&tuned).candidate.job(
            &ReplayDevice {
                limit: Some(limit),
                ..ReplayDevice::default()
            },
            recorded.runs()[0],
        );
        let mut allocator = job.policy.build(&job.device, job.run.requests);
        run(job.run.requests, &mut *allocator).out_of_memory
    };
    assert_eq!(refused(limit), 0);
    assert!(refused(limit - 3 * MIB) > 0);
}

#[test]
fn time_counts_beyond_its_share() {
    // No two sizes are the same, so each step moves memory.
    let mut random = 99_u64;
    let mut size = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        1 + (random >> 33) % (50 * MIB)
    };
    let sizes: Vec<Vec<u64>> = (0..30).map(|_| (0..9).map(|_| size()).collect()).collect();
    let recorded = steps(&[64 * MIB], &sizes, "0");
    let free = quietly(
        std::slice::from_ref(&recorded),
        &Options {
            within: 100.0,
            ..OPTIONS
        },
    );
    let none = quietly(
        &[recorded],
        &Options {
            within: 0.0,
            ..OPTIONS
        },
    );
    let least = free.tried.iter().map(|one| one.sum.peak_taken).min();
    let least = least.expect("some");
    assert!(advised(&free).sum.peak_taken <= least + least / 200);
    assert!(advised(&none).sum.steady_ns < advised(&free).sum.steady_ns);
    assert!(free.advice.unwrap().within && !none.advice.unwrap().within);
}

#[test]
fn the_advice_is_the_same_by_any_number_of_threads() {
    let recorded = [
        steps(&[40 * MIB], &varying(3 * MIB, 16), "0"),
        steps(&[MIB], &varying(MIB + 512, 12), "-"),
    ];
    let seen: Vec<_> = [1, 2, 9]
        .map(|threads| {
            let tuned = quietly(&recorded, &Options { threads, ..OPTIONS });
            let sums: Vec<Cost> = tuned.tried.iter().map(|one| one.sum).collect();
            (lines(&tuned), sums, tuned.front, tuned.confidence)
        })
        .into();
    assert!(seen.iter().all(|one| *one == seen[0]));
    assert!(seen[0].1.len() > 6);
}

#[test]
fn without_time_nothing_is_tried() {
    let recorded = [steps(&[MIB], &varying(MIB, 8), "0")];
    let options = Options {
        budget: Duration::ZERO,
        ..OPTIONS
    };
    let tuned = quietly(&recorded, &options);
    assert!(tuned.tried.is_empty() && tuned.advice.is_none() && tuned.closest.is_none());
    let all = candidates(
        Families {
            plain: false,
            ordered: true,
        },
        7 * MIB,
    );
    assert_eq!(tuned.not_tried, all.len());
    assert!(quietly(&[], &OPTIONS).advice.is_none());
}

#[test]
fn halves_that_are_alike_and_others() {
    let alike = quietly(&[steps(&[MIB], &varying(3 * MIB, 31), "0")], &OPTIONS);
    assert_eq!(alike.confidence.parts, Parts::Halves);
    assert_eq!(
        alike.confidence.level,
        Level::Sure,
        "{:?}",
        alike.confidence
    );
    assert_eq!(alike.iterations, 28);

    // The second half requests twice as much, and other sizes.
    let mut other = varying(3 * MIB, 17);
    other.extend(varying(7 * MIB, 14));
    let other = quietly(&[steps(&[MIB], &other, "0")], &OPTIONS);
    assert_eq!(other.confidence.level, Level::Guess);
    let check = &other.confidence.checks[0];
    assert!(
        check.seen > 2 * check.predicted && check.change() > 100.0,
        "{check:?}"
    );

    // A tenth more memory: the choice is clear, the amount is not.
    let mut more = vec![vec![20 * MIB; 10]; 17];
    more.extend(vec![vec![22 * MIB; 10]; 14]);
    let more = quietly(&[steps(&[2 * MIB], &more, "0")], &OPTIONS);
    assert_eq!(
        more.confidence.level,
        Level::FairlySure,
        "{:?}",
        more.confidence
    );

    let mut short = steps(&[MIB], &varying(3 * MIB, 4), "0");
    let few = quietly(std::slice::from_ref(&short), &OPTIONS);
    short.starts.clear();
    let none = quietly(&[short], &OPTIONS);
    for tuned in [few, none] {
        assert_eq!(
            (tuned.confidence.parts, tuned.confidence.level),
            (Parts::None, Level::Guess)
        );
    }
}

#[test]
fn recordings_are_held_apart_in_turn() {
    let one = || steps(&[MIB], &varying(3 * MIB, 10), "0");
    let same = quietly(&[one(), one(), one()], &OPTIONS);
    assert_eq!(same.confidence.parts, Parts::Recordings);
    assert_eq!(same.confidence.checks.len(), 3);
    assert_eq!(same.confidence.level, Level::Sure);
    let sum = advised(&same).sum;
    assert_eq!(sum.peak_reserved, advised(&same).costs[0].peak_reserved);
    assert_eq!(sum.driver_ns, 3 * advised(&same).costs[0].driver_ns);

    let larger = steps(&[MIB], &varying(9 * MIB, 10), "0");
    let apart = quietly(&[one(), larger], &OPTIONS);
    assert_eq!(apart.confidence.checks.len(), 2);
    assert_eq!(apart.confidence.level, Level::Guess);
}

#[test]
fn what_a_recording_was_made_under() {
    let mut recorded = steps(&[64 * MIB], &varying(64 * MIB, 20), "0");
    let setting = |name: &str, value: &str| (name.to_string(), value.to_string());
    recorded.settings = BTreeMap::from([
        setting("GPUSHIM_POLICY", "blocks"),
        setting("GPUSHIM_PAGE", "2M"),
        setting("GPUSHIM_TAKEOVER", "torch"),
        setting("GPUSHIM_REUSE", "order"),
    ]);
    let tuned = quietly(std::slice::from_ref(&recorded), &OPTIONS);
    let advice = tuned.advice.as_ref().unwrap();
    // Variables that concern the program stay; the policy is unset.
    assert_eq!(lines(&tuned), "GPUSHIM_TAKEOVER=torch GPUSHIM_PAGE=64M");
    assert_eq!(advice.environment.unset, ["GPUSHIM_POLICY"]);
    let blocks = Candidate::of(alloc::Policy::Blocks);
    let was = tuned.tried.iter().find(|one| one.candidate == blocks);
    assert!(advice.baseline.own_time);
    assert_eq!(advice.baseline.driver_ns, was.map(|one| one.sum.driver_ns));
    // A list of requests has no record of the held memory.
    assert_eq!(advice.baseline.than, Than::Torch);
    assert!(advice.baseline.peak_reserved > Some(0));

    recorded.settings.clear();
    recorded.tensors = true;
    let tuned = quietly(&[recorded], &OPTIONS);
    assert_eq!(lines(&tuned), "GPUSHIM_TAKEOVER=torch GPUSHIM_PAGE=64M");
    assert!(!tuned.advice.unwrap().baseline.own_time);
}

/// The variables put the replayed settings in force.
#[test]
fn variables_mean_what_was_tried() {
    for families in [(true, false), (false, true), (true, true)] {
        let (plain, ordered) = families;
        let families = Families { plain, ordered };
        let all = candidates(families, 5 << 30);
        for candidate in &all {
            let variables = candidate.variables();
            let value = |name: &str| {
                let set = variables.iter().find(|(other, _)| *other == name)?;
                Some(set.1.clone().into())
            };
            let (config, problems) = Config::from_lookup(value);
            assert!(problems.is_empty(), "{candidate}: {problems:?}");
            assert_eq!(config.policy, candidate.policy, "{candidate}");
            assert!(!candidate.is_paged() || config.page == candidate.page);
            assert_eq!(config.cache_max, candidate.cache_max, "{candidate}");
            let same = all.iter().filter(|other| *other == candidate).count();
            assert_eq!(same, 1, "{candidate}");
            let settings = |name: &str| {
                let known = gpushim_config::VARIABLES
                    .iter()
                    .find(|one| one.name == name);
                let set = variables.iter().find(|(other, _)| *other == name);
                set.map(|(_, value)| value.clone())
                    .or(known.map(|one| one.default.to_string()))
            };
            assert_eq!(Candidate::recorded(settings, families), Some(*candidate));
        }
        assert!(all[0].variables().is_empty(), "the default first");
    }
}

/// A generated training with leaks and streams: a replay with the advice has the reported costs.
#[test]
fn what_is_advised_is_what_a_replay_holds() {
    let requests = generate(&Shape {
        layers: 10,
        steps: 12,
        leaks: 1,
        streams: 2,
        ..Shape::default()
    });
    let recorded = Recorded {
        devices: BTreeMap::from([(0, requests.clone()), (3, requests)]),
        starts: Vec::new(),
        is_sure: false,
        tensors: false,
        settings: BTreeMap::new(),
        is_wrapped: false,
    };
    let tuned = quietly(std::slice::from_ref(&recorded), &OPTIONS);
    let best = advised(&tuned);
    for (requests, cost) in recorded.devices.values().zip(&best.costs) {
        let job = best.candidate.job(
            &ReplayDevice::default(),
            Run {
                requests,
                started: 0,
            },
        );
        let mut allocator = job.policy.build(&job.device, requests);
        let outcome = run(requests, &mut *allocator);
        assert_eq!(
            (outcome.peak_reserved, outcome.driver_ns),
            (cost.peak_reserved, cost.driver_ns)
        );
        assert!(cost.steady_ns < cost.driver_ns);
    }
}

#[test]
fn what_differs_hardly_is_chosen_by_time() {
    let sum = |peak_taken, driver_ns| Cost {
        peak_taken,
        driver_ns,
        steady_ns: driver_ns,
        ..Cost::default()
    };
    let sums = [sum(1010, 5), sum(1000, 50), sum(1005, 10), sum(1004, 20)];
    assert_eq!(choose(&sums, None), Some(2));
    assert_eq!(choose(&sums, Some(30)), Some(2));
    assert_eq!(choose(&sums, Some(9)), Some(0));
    assert_eq!(choose(&sums, Some(1)), Some(0));
    assert_eq!(choose(&[], None), None);
}

fn sum() -> impl Strategy<Value = Cost> {
    // Few different values, so that some are equal.
    (0..12_u64, 0..12_u64, 0..12_u64, 0..8_u64).prop_map(|(held, ns, steady, refused)| Cost {
        peak_taken: held,
        driver_ns: ns,
        steady_ns: steady.min(ns),
        out_of_memory: u64::from(refused == 0),
        ..Cost::default()
    })
}

proptest! {
    /// No sum on the front is dominated. Each other sum is dominated by one on the front, or costs
    /// the same.
    #[test]
    fn the_front_is_one(sums in proptest::collection::vec(sum(), 0..30), percent in 0..12_u64) {
        let front = front(&sums);
        let no_worse = |one: &Cost, other: &Cost| {
            one.peak_taken <= other.peak_taken && one.driver_ns <= other.driver_ns
        };
        for (at, sum) in sums.iter().enumerate() {
            if front.contains(&at) {
                prop_assert!(sum.fits());
                let better = |other: &Cost| other.fits() && no_worse(other, sum) && !no_worse(sum, other);
                prop_assert!(!sums.iter().any(better));
            } else if sum.fits() {
                prop_assert!(front.iter().any(|on| no_worse(&sums[*on], sum)));
            }
        }
        prop_assert!(front.windows(2).all(|pair| sums[pair[0]].peak_taken < sums[pair[1]].peak_taken));

        let chosen = choose(&sums, Some(percent));
        prop_assert_eq!(chosen.is_some(), sums.iter().any(Cost::fits));
        if let Some(chosen) = chosen {
            prop_assert!(front.contains(&chosen));
            for on in front {
                if sums[on].steady_ns <= percent {
                    prop_assert!(sums[chosen].steady_ns <= percent);
                    prop_assert!(sums[chosen].peak_taken <= sums[on].peak_taken);
                }
            }
        }
    }
}

//! Pools that follow a plan: random programs, each with a plan made of an earlier run of itself,
//! whole, cut off, or with places that are wrong.

use super::machine::{Machine, OF_DEVICE, run, stream};
use super::mutations::{PLAIN, allocate, free};
use super::program::{Action, MIB, PoolPlans, Setting, program, setting};
use crate::handles::Context;
use crate::plan::{PoolPlan, Step};
use crate::policy::Policy;
use crate::sim::{Call, Mistake};
use crate::stream_pool::Progress;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is live, by number: its pool, where it was placed, and where that ends.
type Placed = BTreeMap<u64, (usize, u64, u64)>;

/// Lowest place first.
fn place(placed: &Placed, pool: usize, bytes: u64) -> u64 {
    let mut taken: Vec<(u64, u64)> = placed
        .values()
        .filter(|(of, ..)| *of == pool)
        .map(|(_, from, to)| (*from, *to))
        .collect();
    taken.sort_unstable();
    let mut at = 0;
    for (from, to) in taken {
        if at + bytes <= from {
            break;
        }
        at = at.max(to);
    }
    at
}

/// What each pool of a program did.
fn plans(setting: &Setting, actions: &[Action]) -> [Vec<Step>; 3] {
    let mut machine = Machine::new(setting);
    let mut placed = Placed::new();
    let mut steps = [const { Vec::new() }; 3];
    for action in actions {
        machine.act(action);
        placed.retain(|number, _| machine.live.iter().any(|block| block.number == *number));
        let mut new: Vec<_> = machine
            .live
            .iter()
            .filter(|block| !placed.contains_key(&block.number))
            .map(|block| (block.number, block.pool, block.grant.size))
            .collect();
        new.sort_unstable();
        for (number, pool, bytes) in new {
            let offset = place(&placed, pool, bytes);
            placed.insert(number, (pool, offset, offset + bytes));
            let offset = Some(offset);
            steps[pool].push(Step { bytes, offset });
        }
    }
    steps
}

/// What is wrong with a plan.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    None,
    /// It is of fewer steps, after which it begins again here.
    Short(usize, Option<usize>),
    /// A step goes elsewhere.
    Moved(usize, Option<u64>),
}

fn spoil(mut steps: Vec<Step>, flaw: Flaw) -> Option<Arc<PoolPlan>> {
    let length = steps.len().max(1);
    let again = match flaw {
        Flaw::None => None,
        Flaw::Short(to, again) => {
            steps.truncate(to % length);
            again
        }
        Flaw::Moved(at, offset) => {
            if let Some(step) = steps.get_mut(at % length) {
                step.offset = offset.map(|offset| offset * 512);
            }
            None
        }
    };
    Some(Arc::new(PoolPlan::new(steps, again)))
}

fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        2 => Just(Flaw::None),
        1 => (0..200_usize, proptest::option::of(0..200_usize)).prop_map(|(to, again)| Flaw::Short(to, again)),
        2 => (0..200_usize, proptest::option::of(0..40_000_u64)).prop_map(|(at, to)| Flaw::Moved(at, to)),
    ]
}

#[test]
fn nothing_goes_wrong_with_a_placement() {
    let cases = std::env::var("STREAM_POOL_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    let cases: u32 = cases.unwrap_or(if cfg!(miri) { 4 } else { 400 });
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    });
    let length = if cfg!(miri) { 40 } else { 320 };
    let strategy = (setting(Policy::Vmm), program(length), flaw());
    let result = runner.run(&strategy, |(mut setting, actions, flaw)| {
        // What an earlier run does is not at issue here: without failures.
        let fail = setting.fail.take();
        let steps = plans(&setting, &actions);
        setting.fail = fail;
        setting.plans = steps.map(|steps| spoil(steps, flaw));
        match Mistake::None.finding(|lie| run(&setting, &actions, lie)) {
            Some(finding) => Err(TestCaseError::fail(finding)),
            None => Ok(()),
        }
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

fn steps(steps: &[(u64, u64)]) -> PoolPlans {
    let step = |&(bytes, offset)| Step {
        bytes,
        offset: Some(offset),
    };
    let steps = steps.iter().map(step).collect();
    [Some(Arc::new(PoolPlan::new(steps, None))), None, None]
}

/// Runs a program and tells where its blocks are, from the first one's address, and how far it followed.
fn follow(setting: &Setting, actions: &[Action]) -> (Vec<i64>, Progress, u64) {
    let mut machine = Machine::new(setting);
    let mut found = BTreeMap::new();
    for action in actions {
        machine.act(action);
        for block in &machine.live {
            found.insert(block.number, block.grant.address as i64);
        }
        assert_eq!(machine.sim().findings(), Vec::<String>::new());
    }
    let first = found.values().next().copied().unwrap_or(0);
    let progress = machine.pool(0).progress().expect("a plan");
    let held = machine.pool(0).stats().peak_reserved;
    (
        found.values().map(|at| at - first).collect(),
        progress,
        held,
    )
}

#[test]
fn blocks_go_where_they_are_to() {
    let setting = Setting {
        plans: steps(&[(MIB, 0), (3 * MIB, 7 * MIB), (MIB, 5 * MIB), (4 * MIB, MIB)]),
        ..PLAIN
    };
    let actions = [
        allocate(0, MIB),
        allocate(0, 3 * MIB),
        free(1, 0),
        allocate(0, MIB - 5),
        allocate(0, 4 * MIB),
        allocate(0, 512),
    ];
    let (places, progress, held) = follow(&setting, &actions);
    let mib = MIB as i64;
    assert_eq!(places[..4], [0, 7 * mib, 5 * mib, mib]);
    assert_eq!(progress.followed, 4);
    let left = progress.diverged.expect("it was at its end");
    assert_eq!((left.asked, left.expected), (512, 0));
    // 0 to 6 and 6 to 10 MiB, of which a free page moves to where what is small goes.
    assert_eq!(held, 10 * MIB);
}

#[test]
fn a_place_that_is_in_use_is_not_given() {
    let setting = Setting {
        plans: steps(&[(2 * MIB, 0), (MIB, MIB), (MIB, 4 * MIB)]),
        ..PLAIN
    };
    let actions = [allocate(0, 2 * MIB), allocate(0, MIB), allocate(0, MIB)];
    let (_, progress, _) = follow(&setting, &actions);
    assert_eq!(progress.followed, 1);
    let left = progress.diverged.expect("it was in use");
    assert_eq!((left.asked, left.expected), (MIB, MIB));
}

/// A plan is followed across streams: the later one is made to wait for the earlier one's work.
#[test]
fn another_streams_place_is_taken_behind_its_work() {
    let setting = Setting {
        plans: steps(&[(2 * MIB, 0), (2 * MIB, 0)]),
        ..PLAIN
    };
    let actions = [allocate(0, 2 * MIB), free(0, 0), allocate(1, 2 * MIB)];
    let (places, progress, held) = follow(&setting, &actions);
    assert_eq!((places[1], progress.followed, held), (0, 2, 2 * MIB));
    let unordered = Mistake::Lie(Call::Order).finding(|lie| run(&setting, &actions, lie));
    assert!(unordered.is_some(), "the order is needed");
    // Where streams may not be made to wait, and the host does not wait, it goes elsewhere.
    let setting = Setting {
        orders: false,
        ..setting
    };
    let (places, progress, _) = follow(&setting, &actions);
    assert_ne!(places[1], 0);
    assert_eq!(progress.followed, 1);
    assert_eq!(run(&setting, &actions, None), Vec::<String>::new());
}

/// What was given back to the driver meanwhile is mapped again.
#[test]
fn memory_that_went_back_comes_again() {
    let setting = Setting {
        plans: steps(&[(4 * MIB, 0), (6 * MIB, 0)]),
        ..PLAIN
    };
    let actions = [
        allocate(0, 4 * MIB),
        free(0, 0),
        Action::Step {
            stream: 0,
            times: 9,
        },
        Action::Trim { pool: 0, keep: 0 },
        allocate(0, 6 * MIB),
    ];
    let (places, progress, held) = follow(&setting, &actions);
    assert_eq!((places[1], progress.followed, held), (0, 2, 6 * MIB));
}

/// A place may straddle more pages than there is memory for: another does.
#[test]
fn a_place_that_takes_too_many_pages_is_given_up() {
    let setting = Setting {
        plans: steps(&[(4 * MIB, MIB)]),
        capacity: 4 * MIB,
        ..PLAIN
    };
    let actions = [allocate(0, 4 * MIB)];
    let (places, progress, held) = follow(&setting, &actions);
    assert_eq!((places.len(), progress.followed, held), (1, 0, 4 * MIB));
}

/// The figures of a pool for a whole context, as `cudaMalloc`'s is.
#[test]
fn the_pool_of_cudamalloc_follows_too() {
    let mut plans = steps(&[(MIB, MIB), (MIB, 0)]);
    plans.swap(0, OF_DEVICE);
    let setting = Setting { plans, ..PLAIN };
    let mut machine = Machine::new(&setting);
    let on = stream(Context(1), crate::handles::Stream::LEGACY);
    assert!(machine.allocate(OF_DEVICE, on, MIB, true));
    assert!(machine.allocate(OF_DEVICE, on, MIB, true));
    let address = |at: usize| machine.live[at].grant.address;
    assert_eq!(address(0) - address(1), MIB);
}

/// A plan of one step, and of two that repeat.
fn periodic() -> PoolPlans {
    let step = |(bytes, offset)| Step {
        bytes,
        offset: Some(offset),
    };
    let steps = [(MIB, 0), (2 * MIB, MIB), (3 * MIB, 3 * MIB)].map(step);
    let plan = PoolPlan::new(steps.to_vec(), Some(1));
    [Some(Arc::new(plan)), None, None]
}

#[test]
fn after_a_request_that_differs_the_next_period_is_followed() {
    let setting = Setting {
        plans: periodic(),
        ..PLAIN
    };
    let mut actions = vec![allocate(0, MIB)];
    let period = [
        allocate(0, 2 * MIB),
        allocate(0, 3 * MIB),
        free(1, 0),
        free(1, 0),
    ];
    actions.extend(period.clone());
    // In the middle of the second period.
    actions.extend([allocate(0, 2 * MIB), allocate(0, 5 * MIB)]);
    actions.extend([free(1, 0), free(1, 0)]);
    // The third one is recognised, the fourth one followed.
    actions.extend(period.clone());
    actions.extend(period);
    let (places, progress, _) = follow(&setting, &actions);
    let mib = MIB as i64;
    assert_eq!(places[..4], [0, mib, 3 * mib, mib]);
    assert_eq!(places[7..], [mib, 3 * mib]);
    assert_eq!((progress.followed, progress.returned), (6, 1));
    let left = progress.diverged.expect("it differed once");
    assert_eq!((left.asked, left.expected), (5 * MIB, 3 * MIB));
    assert_eq!(run(&setting, &actions, None), Vec::<String>::new());
}

/// A place that is in use does not put the requests after it out of step: once it is free, they go to their places.
#[test]
fn in_a_period_a_place_in_use_is_passed_over() {
    let setting = Setting {
        plans: periodic(),
        ..PLAIN
    };
    let actions = [
        allocate(0, MIB),
        allocate(0, 2 * MIB),
        allocate(0, 3 * MIB),
        free(2, 0),
        // The first of this period finds its place in use, and takes part of the second one's.
        allocate(0, 2 * MIB),
        allocate(0, 3 * MIB),
        free(1, 0),
        free(1, 0),
        free(1, 0),
        allocate(0, 2 * MIB),
        allocate(0, 3 * MIB),
    ];
    let (places, progress, _) = follow(&setting, &actions);
    let mib = MIB as i64;
    assert_ne!(places[3], mib);
    assert_eq!(places[5..], [mib, 3 * mib]);
    assert_eq!((progress.followed, progress.returned), (5, 0));
    let left = progress.diverged.expect("places were in use");
    assert_eq!(left.asked, left.expected);
    assert_eq!(run(&setting, &actions, None), Vec::<String>::new());
}

//! Runs of many kinds, drawn by a seed. No clean run may raise an alarm, and planted leaks must be
//! found.

use std::fmt::Write as _;

use crate::growth::Growth;
use crate::ledger::Focus;
use crate::ledger::sample::{LEAK, Training};
use crate::loops::{Followed, Iterations};
use gpushim_trace::{Kind, StackNode, Trace};

const RUNS: u64 = 500;

struct Found {
    iterations: Option<Iterations>,
    growth: Option<Growth>,
    highest: u64,
}

fn find(trace: &Trace) -> Found {
    let focus = Focus::of(trace, None);
    let followed = Followed::of(trace, focus, None);
    let stretches = followed.highest.stretches().iter();
    Found {
        growth: Growth::of(&followed),
        highest: stretches.map(|one| one.highest).max().unwrap_or(0),
        iterations: followed
            .growth
            .map(|(iterations, _)| iterations)
            .or(followed.iterations),
    }
}

/// Calls a function for every seed, on both cores; returns the results in the order of seeds.
fn all<T: Send>(of: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let half = |odd: u64| (0..RUNS).filter(|seed| seed % 2 == odd).map(&of).collect();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut all: Vec<T> = half(0);
        all.extend(other.join().unwrap());
        all
    })
}

#[test]
fn no_clean_run_raises_an_alarm() {
    let alarms = all(|seed| {
        let how = Training::clean(seed);
        let (_dir, trace) = how.record();
        let found = find(&trace);
        // A likely growth is an alarm, too. A few passes cannot show if their blocks will be freed.
        let growth = found.growth.as_ref().filter(|growth| {
            growth.is_found() && (growth.grows || growth.telling > gpushim_analysis::repeats::FEW)
        });
        growth.map(|growth| {
            let count = found.iterations.as_ref().map(Iterations::count);
            let by = found
                .iterations
                .as_ref()
                .map(|all| (&all.by, &all.certainty));
            let keepers = &growth.keepers;
            format!("seed {seed}: {how:?}\n  {count:?} {by:?}\n  {keepers:?}\n")
        })
    });
    let alarms: Vec<String> = alarms.into_iter().flatten().collect();
    assert!(
        alarms.is_empty(),
        "{} alarms:\n{}",
        alarms.len(),
        alarms.concat()
    );
}

#[test]
fn planted_leaks_are_found() {
    let told = all(|seed| {
        let how = Training::leaking(seed);
        let (_dir, trace) = how.record();
        let found = find(&trace);
        let all = found.iterations.as_ref().map_or(0, Iterations::count) as u64;
        let turns = how.steps;
        // A ring that lost its beginning shows only the rest. Micro-batches and tokens are
        // iterations, too.
        let finer =
            (how.generates > 0) && all >= turns * how.generates / 2 && all <= turns * how.generates;
        // A loop over every n-th step leaves the blocks of these steps in each pass.
        let of_leaks = (how.leaks_every > 1) && all.abs_diff(turns / how.leaks_every) <= 1;
        // Without stacks nothing is certain: a size may be requested several times in each step.
        let is_sure = found
            .iterations
            .as_ref()
            .is_some_and(|all| all.certainty.sure);
        let is_right = how.is_wrapped
            || !is_sure && !how.stacks
            || of_leaks
            || finer
            || [turns, turns * how.micro_batches]
                .iter()
                .any(|turns| all.abs_diff(*turns) <= 1 + *turns / 50);
        let planted = how.leak as f64 / how.leaks_every as f64;
        let seen = trace.events().filter(|record| {
            record.event.kind == Kind::TensorAlloc && record.event.size == how.leak
        });
        let total = how.leak as f64 * seen.count() as f64;
        let counts = total >= 0.001 * found.highest as f64 && all >= 10;
        let growth = found.growth.as_ref();
        let rate = growth
            .filter(|growth| growth.is_found())
            .map_or(0.0, |growth| growth.per_iteration);
        // If the iterations are finer than steps, each leaves fewer bytes behind.
        let is_sized = (rate - planted).abs() <= 0.02 * planted
            || (rate * all as f64 - total).abs() <= (0.02 * total).max(how.leak as f64);
        let stack = growth
            .and_then(|growth| growth.keepers.first())
            .map(|keeper| keeper.stack);
        let innermost = stack.and_then(|stack| trace.stack(stack).next());
        let is_placed = !how.stacks || innermost == Some(StackNode::Frame(LEAK));
        let mut why = String::new();
        if counts && !(rate > 0.0 && is_sized && is_placed) || !is_right {
            let by = found
                .iterations
                .as_ref()
                .map(|all| (&all.by, &all.certainty));
            let miss = counts && !(rate > 0.0 && is_sized && is_placed);
            let _ = writeln!(
                why,
                "miss {miss} right {is_right}\n    seed {seed}: {how:?}\n  iterations {all} of {turns}, rate {rate} of {planted}, placed {is_placed}, {by:?} {:?}",
                growth.map(|growth| (&growth.keepers, &growth.judgement))
            );
        }
        (counts, rate > 0.0 && is_sized && is_placed, is_right, why)
    });
    let counted = told.iter().filter(|one| one.0).count();
    let hit = told.iter().filter(|one| one.0 && one.1).count();
    let right = told.iter().filter(|one| one.2).count();
    let why: String = told.iter().map(|one| one.3.as_str()).collect();
    println!("{hit} of {counted} found, iterations right in {right} of {RUNS}");
    assert!(
        hit * 100 >= counted * 95 && right * 100 >= told.len() * 95,
        "{hit} of {counted} found, iterations right in {right} of {RUNS}\n{why}"
    );
}

use crate::plan::lives::rounded;
use proptest::prelude::*;

use super::*;
use crate::plan::place::Effort;
use crate::replay::{Policy, ReplayDevice, run};
use crate::requests::made::{Shape, generate};
use crate::requests::{Op, Request, Requests};

const MIB: u64 = 1 << 20;

fn push(requests: &mut Requests, op: Op, block: u32, bytes: u64, stream: Option<u64>) {
    let request = Request {
        op,
        block,
        bytes,
        stream,
        thread: 1,
        ns: 0,
    };
    assert!(requests.push(request));
}

fn made(steps: &[(Op, u32, u64)]) -> Requests {
    let mut requests = Requests::default();
    for (op, block, bytes) in steps {
        push(&mut requests, *op, *block, *bytes, Some(0));
    }
    requests
}

/// What `Plan::all` makes first: a period if there is one.
fn first(requests: &Requests, family: Family) -> Option<Plan> {
    let watch = &mut |_, _| {};
    let mut budget = Budget::new(Effort::QUICK, watch);
    let plans = Plan::all(&Lives::of(requests, family), &mut budget);
    plans.into_iter().next()
}

/// Follows a plan on these requests, and checks that no two blocks share a byte. How many went as planned.
fn follow(plan: &Plan, requests: &Requests, family: Family) -> Result<usize, String> {
    let mut live: Vec<(u32, u64, u64)> = Vec::new();
    let (mut at, mut followed) = (0, 0);
    for request in requests.iter() {
        if request.stream.is_none() != (family == Family::Plain) {
            continue;
        }
        match request.op {
            Op::Free => live.retain(|(block, ..)| *block != request.block),
            Op::Allocate => {
                let Some(step) = plan.placement.step(at) else {
                    return Ok(followed);
                };
                if step.bytes != rounded(request.bytes) {
                    return Ok(followed);
                }
                at = plan.placement.after(at);
                followed += 1;
                let Some(from) = step.offset else {
                    continue;
                };
                let to = from + step.bytes;
                if to > plan.placement.bytes() {
                    return Err(format!("beyond the end: {step:?}"));
                }
                if let Some(other) = live.iter().find(|(_, a, b)| *a < to && from < *b) {
                    return Err(format!("request {followed}: {step:?} meets {other:?}"));
                }
                live.push((request.block, from, to));
            }
            Op::Done | Op::Trim => {}
        }
    }
    Ok(followed)
}

#[test]
fn what_never_meets_shares_a_place() {
    let steps = [
        (Op::Allocate, 0, 8 * MIB),
        (Op::Allocate, 1, 2 * MIB),
        (Op::Free, 0, 8 * MIB),
        (Op::Allocate, 2, 6 * MIB),
        (Op::Allocate, 3, 2 * MIB),
    ];
    let plan = first(&made(&steps), Family::Streams).expect("blocks");
    assert_eq!(plan.placement.bytes(), 10 * MIB);
    assert_eq!(plan.placement.steps()[0].offset, Some(0));
    assert_eq!(plan.placement.again(), None);
    assert_eq!(first(&made(&steps), Family::Plain), None);
}

/// Parameters, then iterations of which each leaves something to the next one.
fn iterations(count: u32) -> Requests {
    let mut requests = Requests::default();
    let mut number = 0;
    let mut allocate = |requests: &mut Requests, bytes| {
        push(requests, Op::Allocate, number, bytes, Some(0));
        number += 1;
        number - 1
    };
    for _ in 0..5 {
        allocate(&mut requests, 3 * MIB);
    }
    let mut left = None;
    for _ in 0..count {
        let a = allocate(&mut requests, 8 * MIB);
        let b = allocate(&mut requests, 4 * MIB);
        if let Some(left) = left.take() {
            push(&mut requests, Op::Free, left, 6 * MIB, Some(0));
        }
        push(&mut requests, Op::Free, a, 8 * MIB, Some(0));
        left = Some(allocate(&mut requests, 6 * MIB));
        push(&mut requests, Op::Free, b, 4 * MIB, Some(0));
        // Leaks a little.
        allocate(&mut requests, 1024);
    }
    requests
}

#[test]
fn a_plan_of_ten_iterations_is_followed_for_a_thousand() {
    let plan = first(&iterations(10), Family::Streams).expect("blocks");
    let again = plan.placement.again().expect("it repeats");
    assert_eq!(plan.placement.steps().len() - again, 4, "one iteration");
    assert_eq!(plan.covered, plan.allocations);
    let long = iterations(1000);
    assert_eq!(
        follow(&plan, &long, Family::Streams),
        Ok(5 + 4 * 1000),
        "{plan:?}"
    );
    // 15 for the parameters, at most 8 + 4 + 6, and the leaks of the iterations before it repeats.
    let placed = |step: &&Step| step.bytes == 1024 && step.offset.is_some();
    let leaks = plan.placement.steps().iter().filter(placed).count() as u64 * 1024;
    assert_eq!(plan.placement.bytes(), 33 * MIB + leaks, "{plan:?}");
    // What leaks has no place.
    let loose = |step: &&Step| step.offset.is_none();
    assert_eq!(
        plan.placement.steps()[again..].iter().filter(loose).count(),
        1
    );
}

/// Blocks that live for more than a period need a longer one.
#[test]
fn two_iterations_are_one_period_where_a_block_outlives_one() {
    let mut requests = Requests::default();
    for number in 0..30_u32 {
        push(&mut requests, Op::Allocate, number, 4 * MIB, Some(0));
        if let Some(before) = number.checked_sub(2) {
            push(&mut requests, Op::Free, before, 4 * MIB, Some(0));
        }
    }
    let plan = first(&requests, Family::Streams).expect("blocks");
    assert!(plan.placement.again().is_some(), "{plan:?}");
    assert_eq!(follow(&plan, &requests, Family::Streams), Ok(30));
    assert!(plan.placement.bytes() <= 16 * MIB, "{plan:?}");
}

/// A large leak has no place in a period: such a run is planned once.
#[test]
fn a_run_that_grows_is_planned_as_it_was() {
    let mut requests = Requests::default();
    for number in 0..40_u32 {
        push(&mut requests, Op::Allocate, 2 * number, 4 * MIB, Some(0));
        push(&mut requests, Op::Allocate, 2 * number + 1, MIB, Some(0));
        push(&mut requests, Op::Free, 2 * number, 4 * MIB, Some(0));
    }
    let plan = first(&requests, Family::Streams).expect("blocks");
    assert_eq!(plan.placement.again(), None);
    assert_eq!(plan.placement.bytes(), 44 * MIB);
    assert_eq!(follow(&plan, &requests, Family::Streams), Ok(80));
}

#[test]
fn the_period_of_a_sequence_is_found_behind_a_beginning_and_before_an_end() {
    let mut tokens: Vec<u64> = (1000..1050).collect();
    for _ in 0..20 {
        tokens.extend([1, 2, 2, 2, 3, 1, 4]);
    }
    tokens.extend(2000..2004);
    let period = repeat::find(&tokens).expect("it repeats");
    assert_eq!(period.length, 7);
    assert!(period.from >= 50 && period.from < 57, "{period:?}");
    assert!(period.to <= 190 && period.to > 150, "{period:?}");
    assert_eq!(repeat::find(&tokens[..50]), None);
    assert_eq!(repeat::find(&[]), None);
    assert_eq!(repeat::find(&[1, 1]), None);
}

/// Whichever kind of plan holds least in the simulation is chosen, and `vmm` alone where no plan holds less.
#[test]
fn what_simulates_best_is_chosen() {
    let requests = iterations(10);
    // Held bytes of a plan of a period, of the whole run, and without one; what is chosen.
    for (period, whole, without, chosen) in [
        (51, 50, 52, Some(Kind::Whole)),
        (50, 51, 52, Some(Kind::Period)),
        (50, 50, 50, Some(Kind::Period)),
        (51, 50, 50, Some(Kind::Whole)),
        (51, 51, 50, None),
    ] {
        let simulate = |plans: &Plans| match plans.of(0, Family::Streams) {
            None => without,
            Some(plan) if plan.again().is_some() => period,
            Some(_) => whole,
        };
        let watch = &mut |_, _| {};
        let choice = choose(&requests, &simulate, &mut Budget::new(Effort::QUICK, watch));
        let kinds: Vec<Kind> = choice.plans.iter().map(|(_, plan)| plan.kind).collect();
        assert_eq!(kinds, Vec::from_iter(chosen));
        assert_eq!(choice.held, period.min(whole).min(without));
        assert_eq!(choice.held_by_vmm, without);
    }
}

/// Two families, with a plan of a period and one of the whole run each.
#[test]
fn all_placements_share_one_budget() {
    let mut requests = Requests::default();
    for number in 0..3000_u32 {
        let stream = Some(0).filter(|_| number % 2 == 0);
        let bytes = |number: u32| u64::from(number.wrapping_mul(2_654_435_761) % 100 + 1) * MIB;
        push(
            &mut requests,
            Op::Allocate,
            number,
            bytes(number % 500),
            stream,
        );
        if let Some(before) = number.checked_sub(40) {
            push(&mut requests, Op::Free, before, bytes(before % 500), stream);
        }
    }
    let effort = Effort {
        steps: 4_000_000,
        unit: 1,
    };
    let mut seen = Vec::new();
    let mut watch = |done, of| seen.push((done, of));
    let simulate = |plans: &Plans| u64::from(plans.pools.is_empty());
    let choice = choose(&requests, &simulate, &mut Budget::new(effort, &mut watch));
    assert_eq!(choice.plans.len(), 2);
    assert!(seen.iter().all(|(_, of)| *of == effort.steps));
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(seen.len() > 8, "{seen:?}");
}

#[test]
fn the_pool_holds_what_the_plan_says() {
    for (varies, leaks) in [(false, 0), (true, 0), (false, 2)] {
        let requests = generate(&Shape {
            layers: 12,
            steps: 20,
            varies,
            leaks,
            ..Shape::default()
        });
        let plan = first(&requests, Family::Streams).expect("blocks");
        assert_eq!(plan.placement.again().is_some(), !varies && leaks == 0);
        let mut allocator = Policy::Plan.build(&ReplayDevice::default(), &requests);
        let outcome = run(&requests, &mut *allocator);
        let pages = plan.placement.bytes().next_multiple_of(2 * MIB);
        assert!(outcome.peak_reserved <= pages, "{outcome:?}");
        assert!(outcome.utilization > 0.98, "{outcome:?}");
    }
}

proptest! {
    /// Whatever repeats, with whatever before and between: no two blocks of a plan that live at the same time share a
    /// byte, and the run that it was made of is followed to where it was to hold.
    #[test]
    fn blocks_are_apart(
        before in proptest::collection::vec((1..40_u64, any::<bool>()), 0..20),
        period in proptest::collection::vec((1..4000_u64, 0..12_usize, 0..2_u64), 1..12),
        times in 1..12_u32,
        plain in any::<bool>(),
    ) {
        let mut requests = Requests::default();
        let stream = (!plain).then_some(0);
        let mut number = 0;
        for (bytes, freed) in before {
            push(&mut requests, Op::Allocate, number, bytes * MIB / 4, stream);
            if freed {
                push(&mut requests, Op::Free, number, bytes * MIB / 4, stream);
            }
            number += 1;
        }
        // Each is freed so many allocations after it came.
        let mut due: Vec<(u32, u32, u64)> = Vec::new();
        for _ in 0..times {
            for (kib, after, other) in &period {
                // Another pool's requests are between.
                if *other == 1 {
                    push(&mut requests, Op::Allocate, number, 4096, if plain { Some(0) } else { None });
                    number += 1;
                }
                let bytes = kib << 10;
                push(&mut requests, Op::Allocate, number, bytes, stream);
                due.push((number + *after as u32, number, bytes));
                number += 1;
                for (_, block, bytes) in due.extract_if(.., |(at, ..)| *at < number) {
                    push(&mut requests, Op::Free, block, bytes, stream);
                }
            }
        }
        let family = if plain { Family::Plain } else { Family::Streams };
        let plan = first(&requests, family).expect("blocks");
        let followed = follow(&plan, &requests, family).map_err(TestCaseError::fail)?;
        prop_assert!(followed >= plan.covered, "{followed} of {}: {plan:?}", plan.covered);
    }
}

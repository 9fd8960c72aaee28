//! Every step that keeps memory safe is needed: each one left out is noticed.

use super::program::{program, run, setting};
use crate::pool::sim::Call;
use crate::pool::state::Mutation;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::panic::catch_unwind;

/// Programs that are tried at most.
const MOST: usize = 20_000;

/// Programs until one goes wrong that would not without the mistake: how many it took.
fn programs_until(mutation: Mutation, lie: Option<Call>) -> Option<usize> {
    let mut runner = TestRunner::deterministic();
    let (settings, programs) = (setting(), program(160));
    (1..=MOST).find(|n| {
        let mut setting = settings.new_tree(&mut runner).expect("a setting").current();
        let actions = programs.new_tree(&mut runner).expect("a program").current();
        setting.fail = None;
        // Figures that go wrong as a consequence count too.
        let fails = |mutation, lie| {
            let outcome = catch_unwind(|| run(&setting, &actions, mutation, lie));
            outcome.map_or(true, |findings| !findings.is_empty())
        };
        let noticed = fails(mutation, lie);
        if noticed && fails(Mutation::None, None) {
            panic!("program {n} goes wrong by itself: {setting:?} {actions:?}");
        }
        noticed
    })
}

#[test]
#[cfg_attr(miri, ignore = "too many programs")]
fn each_step_left_out_is_noticed() {
    let missed: Vec<_> = Mutation::ALL
        .iter()
        .filter(|mutation| {
            let found = programs_until(**mutation, None);
            println!("{mutation:?}: noticed after {found:?} programs");
            found.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
#[cfg_attr(miri, ignore = "too many programs")]
fn each_call_without_effect_is_noticed() {
    let calls = [
        Call::Release,
        Call::Record,
        Call::Order,
        Call::Query,
        Call::Wait,
        Call::Synchronize,
    ];
    for call in calls {
        let found = programs_until(Mutation::None, Some(call));
        println!("{call:?} without effect: noticed after {found:?} programs");
        assert!(found.is_some(), "{call:?}");
    }
}

//! Every step that keeps memory safe is needed: each one left out is noticed.

use super::program::{Action, Setting, program, run, setting};
use crate::device_pool::mutation::Mutation;
use crate::policy::{Policy, Reuse};
use crate::sim::Call;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::panic::catch_unwind;

/// Programs that are tried at most.
const MOST: usize = 2_000;

/// A program that shows a mistake which random programs seldom run into.
fn script(mutation: Mutation) -> Option<Vec<Action>> {
    let allocate = Action::Allocate {
        context: 0,
        bytes: 512,
        ready_only: false,
    };
    let launch = |context| Action::Launch {
        context,
        blocks: [0, 0],
    };
    let free = Action::Free { block: 0 };
    let capture = |refuses| Action::Capture {
        context: 0,
        refuses,
    };
    let end = |graph| Action::EndCapture { capture: 0, graph };
    let replay = Action::Replay {
        context: 0,
        graph: 0,
    };
    let recorded = [capture(false), allocate.clone(), launch(0), end(true)];
    let peer = |on| Action::Peer {
        accessor: 2,
        owner: 0,
        on,
    };
    let too_much = Action::Allocate {
        context: 0,
        bytes: 1 << 40,
        ready_only: false,
    };
    let rest = match mutation {
        Mutation::NoDerived => {
            vec![
                Action::Derive { graph: 0 },
                Action::Destroy { graph: 0 },
                free,
                allocate,
                replay,
            ]
        }
        Mutation::NoHoldBack => vec![capture(false), free, end(false), allocate, replay],
        Mutation::GiveBackUnwaited => {
            let capture = Action::Capture {
                context: 1,
                refuses: false,
            };
            return Some(vec![allocate, launch(1), capture, free, too_much]);
        }
        Mutation::GiveUpKept => {
            return Some(vec![
                capture(true),
                allocate,
                launch(0),
                free,
                end(true),
                too_much,
                replay,
            ]);
        }
        Mutation::ForgetPeers => {
            return Some(vec![
                peer(true),
                allocate.clone(),
                launch(2),
                peer(false),
                free,
                allocate,
            ]);
        }
        _ => return None,
    };
    Some(recorded.into_iter().chain(rest).collect())
}

const PLAIN: Setting = Setting {
    policy: Policy::Blocks,
    reuse: Reuse::Order,
    limit: None,
    cache_max: None,
    share: 100_000,
    margin: 0,
    capacity: 1 << 40,
    events: true,
    fail: None,
};

/// Programs until one goes wrong that would not without the mistake: how many it took.
fn programs_until(mutation: Mutation, lie: Option<Call>) -> Option<usize> {
    if let Some(actions) = script(mutation) {
        assert!(run(&PLAIN, &actions, Mutation::None, None).is_empty());
        return (!run(&PLAIN, &actions, mutation, None).is_empty()).then_some(1);
    }
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

//! Every step that keeps memory safe is needed: each one left out is noticed.

use super::machine::run;
use super::program::{Action, Setting, program, setting};
use crate::mutation::Mutation;
use crate::policy::Reuse;
use crate::sim::{Call, Mistake};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Programs that are tried at most.
const MOST: usize = 2_000;

/// A program that shows a mistake which random programs seldom run into.
fn script(mistake: Mistake) -> Option<Vec<Action>> {
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
    let rest = match mistake {
        Mistake::Of(Mutation::NoDerived) => {
            vec![
                Action::Derive { graph: 0 },
                Action::Destroy { graph: 0 },
                free,
                allocate,
                replay,
            ]
        }
        Mistake::Of(Mutation::NoHoldBack) => {
            vec![capture(false), free, end(false), allocate, replay]
        }
        Mistake::Lie(Call::Drain) => {
            let capture = Action::Capture {
                context: 1,
                refuses: false,
            };
            return Some(vec![allocate, launch(1), capture, free, too_much]);
        }
        Mistake::Of(Mutation::GiveUpKept) => {
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
        Mistake::Of(Mutation::ForgetPeers) => {
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
    reuse: Reuse::Order,
    cache_max: None,
    share: 100_000,
    margin: 0,
    capacity: 1 << 40,
    events: true,
    fail: None,
};

/// How many programs it takes until one goes wrong that would not without the mistake, and how.
fn until(mistake: Mistake) -> Option<(usize, String)> {
    let noticed = |setting: &Setting, actions: &[Action]| {
        let finding = |mistake: Mistake| mistake.finding(|lie| run(setting, actions, lie));
        let noticed = finding(mistake)?;
        let alone = finding(Mistake::None);
        assert_eq!(alone, None, "goes wrong by itself: {setting:?} {actions:?}");
        Some(noticed)
    };
    if let Some(actions) = script(mistake) {
        return Some((1, noticed(&PLAIN, &actions)?));
    }
    let mut runner = TestRunner::deterministic();
    let (settings, programs) = (setting(), program(160));
    (1..=MOST).find_map(|n| {
        let mut setting = settings.new_tree(&mut runner).expect("a setting").current();
        let actions = programs.new_tree(&mut runner).expect("a program").current();
        setting.fail = None;
        Some((n, noticed(&setting, &actions)?))
    })
}

/// The steps of this pool.
const STEPS: [Mutation; 17] = [
    Mutation::UseEarly,
    Mutation::OrderOwnerOnly,
    Mutation::NoNeighbours,
    Mutation::NoPeers,
    Mutation::NoCatchUp,
    Mutation::ForgetPeers,
    Mutation::NoQuarantine,
    Mutation::NoGroup,
    Mutation::NoGraphs,
    Mutation::NoDerived,
    Mutation::NoHoldBack,
    Mutation::FenceUnderCapture,
    Mutation::GiveUpKept,
    Mutation::OpenMark,
    Mutation::MarkDespitePeers,
    Mutation::ReleaseForeign,
    Mutation::KeepEvents,
];

#[test]
#[cfg_attr(miri, ignore = "too many programs")]
fn each_step_left_out_is_noticed() {
    Mistake::all_are_noticed(STEPS.map(Mistake::Of), until);
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
        Call::Drain,
    ];
    Mistake::all_are_noticed(calls.map(Mistake::Lie), until);
}

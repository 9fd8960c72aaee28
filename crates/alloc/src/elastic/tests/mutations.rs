//! Checks that each rule is needed: a test fails without it.

use super::machine::run;
use super::program::{program, setting};
use crate::mutation::Mutation;
use crate::sim::{Call, Mistake};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Most programs that are tried for one mistake.
const MOST: usize = 40_000;

/// Tries programs until one fails because of the mistake. Returns the number of programs, and the
/// error.
fn until(mistake: Mistake) -> Option<(usize, String)> {
    let mut runner = TestRunner::deterministic();
    let (settings, programs) = (setting(), program(200));
    (1..=MOST).find_map(|n| {
        let mut setting = settings.new_tree(&mut runner).expect("a setting").current();
        let actions = programs.new_tree(&mut runner).expect("a program").current();
        setting.fail = None;
        let finding = |mistake: Mistake| mistake.finding(|lie| run(&setting, &actions, lie));
        let noticed = finding(mistake)?;
        assert_eq!(
            finding(Mistake::None),
            None,
            "goes wrong by itself: {setting:?} {}",
            actions.len()
        );
        Some((n, noticed))
    })
}

const RULES: [Mutation; 18] = [
    Mutation::NoLiveSum,
    Mutation::NoRestore,
    Mutation::NoPageFence,
    Mutation::HaveOthers,
    Mutation::HaveUnordered,
    Mutation::ForgetOtherStreams,
    Mutation::UnmapPlaceEarly,
    Mutation::SpareShared,
    Mutation::NoPinOfNew,
    Mutation::NoPinOfLives,
    Mutation::NoPinOfExports,
    Mutation::UnmapBeside,
    Mutation::TrustUnproven,
    Mutation::NoAdmission,
    Mutation::FreeSegmentEarly,
    Mutation::FenceUnderCapture,
    Mutation::QueryUnderCapture,
    Mutation::WaitUnderCapture,
];

#[test]
#[cfg_attr(miri, ignore = "too many programs")]
fn each_rule_left_out_is_noticed() {
    Mistake::all_are_noticed(RULES.map(Mistake::Of), until);
}

#[test]
#[cfg_attr(miri, ignore = "too many programs")]
fn each_call_without_effect_is_noticed() {
    let calls = [Call::Record, Call::Query, Call::Wait, Call::Drain];
    Mistake::all_are_noticed(calls.map(Mistake::Lie), until);
}

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn plans() -> impl Strategy<Value = Plans> {
    let step =
        (1..1_u64 << 20, proptest::option::of(0..1_u64 << 20)).prop_map(|(bytes, at)| Step {
            bytes: bytes * GRANULE,
            offset: at.map(|at| at * GRANULE),
        });
    let steps = proptest::collection::vec(step, 1..40);
    let plan = (steps, proptest::option::of(0..50_usize))
        .prop_map(|(steps, again)| Arc::new(PoolPlan::new(steps, again)));
    let family = prop_oneof![Just(Family::Plain), Just(Family::Streams)];
    proptest::collection::btree_map((0..8_i32, family), plan, 0..5)
        .prop_map(|pools| Plans { pools })
}

proptest! {
    #[test]
    fn text_comes_back_as_it_was(plans in plans()) {
        prop_assert_eq!(Plans::parse(&plans.to_text()).expect("its own text"), plans);
    }

    /// Whatever is cut off or changed: an answer, and never a panic.
    #[test]
    fn no_text_is_too_strange(plans in plans(), at in any::<prop::sample::Index>(), by in any::<char>()) {
        let mut text = plans.to_text();
        let at = at.index(text.len());
        text.replace_range(at..at + 1, &by.to_string());
        let _ = Plans::parse(&text);
        let _ = text.get(..at).map(Plans::parse);
    }
}

#[test]
fn what_is_no_plan_is_named_with_its_line() {
    let cases = [
        ("", "it does not begin with"),
        ("gpushim-plan 2\n", "it does not begin with"),
        ("gpushim-plan 1\nfoo\n", "line 2 should be `pool"),
        (
            "gpushim-plan 1\npool -1 plain steps 0 again -\n",
            "line 2 should be `pool",
        ),
        (
            "gpushim-plan 1\npool 0 plain steps 1 again 1\n512 0\n",
            "line 2 should be `pool",
        ),
        (
            "gpushim-plan 1\npool 0 plain steps 5000000 again -\n",
            "line 2 should be fewer",
        ),
        (
            "gpushim-plan 1\n\n# one\npool 0 plain steps 1 again -\n100 0\n",
            "line 5 should be a size",
        ),
        (
            "gpushim-plan 1\npool 0 plain steps 1 again -\n0 0\n",
            "line 3 should be a size",
        ),
        (
            "gpushim-plan 1\npool 0 plain steps 2 again -\n512 0\n",
            "it ends before",
        ),
    ];
    for (text, why) in cases {
        let error = Plans::parse(text).expect_err(text).to_string();
        assert!(error.starts_with(why), "{text:?}: {error}");
    }
}

#[test]
fn after_the_last_step_comes_the_one_that_is_named() {
    let step = |bytes| Step {
        bytes,
        offset: Some(bytes),
    };
    let plan = PoolPlan::new(vec![step(512), step(1024), step(1536)], Some(1));
    let mut at = 0;
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(plan.step(at).expect("a step").bytes);
        at = plan.after(at);
    }
    assert_eq!(seen, [512, 1024, 1536, 1024, 1536, 1024]);
    assert_eq!(plan.bytes(), 3072);
    let once = PoolPlan::new(vec![step(512)], None);
    assert_eq!(once.step(once.after(0)), None);
}

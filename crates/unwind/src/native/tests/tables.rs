//! Tests of rules that are packed, cached and remembered.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use crate::native::cache::Cache;
use crate::native::rule::{Cfa, Rule, SavedBp, Step};
use crate::native::seen::Seen;

const FAR: i64 = 1 << 23;

fn cfa() -> impl Strategy<Value = Cfa> {
    let offset = || any::<i32>().prop_map(i64::from);
    prop_oneof![
        offset().prop_map(Cfa::Sp),
        offset().prop_map(Cfa::Bp),
        offset().prop_map(Cfa::AtBp),
    ]
}

fn saved_bp() -> impl Strategy<Value = SavedBp> {
    prop_oneof![
        Just(SavedBp::Same),
        (-FAR..FAR).prop_map(SavedBp::AtCfa),
        (-FAR..FAR).prop_map(SavedBp::AtBp),
    ]
}

proptest! {
    #[test]
    fn a_rule_is_what_it_was_made_of(cfa in cfa(), bp in saved_bp(), after_call: bool) {
        let rule = Rule::caller(cfa, bp).with_after_call(after_call);
        prop_assert_eq!(rule.step(), Step::Caller(cfa, bp));
        prop_assert_eq!(rule.after_call(), after_call);
        prop_assert!(!rule.is_guess());
    }

    #[test]
    fn an_offset_too_large_ends_the_walk(offset in any::<i64>(), cfa in cfa()) {
        let sp = Rule::caller(Cfa::Sp(offset), SavedBp::Same);
        prop_assert_eq!(sp == Rule::END, i32::try_from(offset).is_err());
        let bp = Rule::caller(cfa, SavedBp::AtBp(offset));
        prop_assert_eq!(bp == Rule::END, !(-FAR..FAR).contains(&offset));
    }

    /// Uses a table of one entry, so that all addresses share it, with one writer for each of its
    /// words.
    #[test]
    fn a_torn_entry_answers_for_nobody(
        addresses in prop::array::uniform3(0x1000u64..1 << 47),
        rules in prop::array::uniform2((cfa(), saved_bp())),
    ) {
        let cache = Cache::<1>::new();
        let generation = cache.generation();
        let [first, second] = rules.map(|(cfa, bp)| Rule::caller(cfa, bp));
        prop_assume!(first != second && addresses[0] != addresses[1]);
        cache.put(addresses[0], generation, first);
        prop_assert_eq!(cache.get(addresses[0], generation), Some(first));
        prop_assert_eq!(cache.get(addresses[1], generation), None);
        cache.tear(second);
        for address in addresses {
            prop_assert_eq!(cache.get(address, generation), None);
        }
        cache.put(addresses[1], generation, second);
        prop_assert_eq!(cache.get(addresses[1], generation), Some(second));
    }
}

#[test]
fn the_other_rules() {
    assert_eq!(Rule::END.step(), Step::End);
    assert_eq!(Rule::OUTERMOST.step(), Step::Outermost);
    assert_eq!(Rule::NOT_CODE.step(), Step::NotCode);
    assert_eq!(Rule::SIGNAL.step(), Step::Signal);
    let guess = Rule::frame_pointer().with_after_call(true);
    assert_eq!(guess.step(), Step::Caller(Cfa::Bp(16), SavedBp::AtCfa(-16)));
    assert!(guess.is_guess() && guess.after_call());
}

#[test]
fn a_new_generation_knows_nothing() {
    let cache = Cache::<64>::new();
    let old = cache.generation();
    let addresses = || (0x7f12_3456_7000u64..).step_by(16).take(8);
    addresses().for_each(|a| cache.put(a, old, Rule::SIGNAL));
    assert!(addresses().any(|a| cache.get(a, old).is_some()));
    cache.invalidate();
    let new = cache.generation();
    assert!(addresses().all(|a| cache.get(a, new).is_none()));
    // A rule that was compiled before the change is stored where no look-up finds it.
    cache.put(0x1234_5678, old, Rule::SIGNAL);
    assert_eq!(cache.get(0x1234_5678, new), None);
}

#[test]
fn an_object_is_new_once() {
    let seen = Seen::<1024>::new();
    let objects: Vec<u64> = (0..200).map(|i| 0x7f00_0000_0000 + i * 0x21_3000).collect();
    for _ in 0..3 {
        let (news, start) = (AtomicUsize::new(0), Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let new = objects.iter().filter(|&&o| seen.is_new(o)).count();
                    news.fetch_add(new, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(news.into_inner(), objects.len());
        seen.forget();
    }
}

#[test]
fn a_full_set_never_says_seen_of_the_unseen() {
    let seen = Seen::<16>::new();
    let mut first = HashSet::new();
    for i in 0..1000u64 {
        let address = i % 100 * 0x1000;
        assert!(seen.is_new(address) || first.contains(&address));
        first.insert(address);
    }
}

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

fn words(records: usize) -> Vec<AtomicU64> {
    let count = (1 + records) * layout::WORDS;
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn module(number: u64) -> Module {
    let note: Vec<u8> = (0..number as u8 % 25).collect();
    Module {
        begin: number << 20,
        end: (number << 20) + 0x5000,
        bias: (number << 20).wrapping_sub(0x40_0000),
        path: number as u32 + 8,
        generation: number / 3,
        build_id: BuildId::new(&note),
    }
}

#[test]
fn modules_come_back_in_order_and_those_that_do_not_fit_are_counted() {
    let words = words(25);
    let part = Modules::new(&words);
    let added = (0..30).filter(|number| part.add(&module(*number))).count();
    assert_eq!(added, 25);
    let expected: Vec<_> = (0..25).map(module).collect();
    assert_eq!(modules(&words, layout::WORDS), (expected, 0));
    assert_eq!(words[layout::CUT].load(Ordering::Relaxed), 5);
    assert_eq!(words[layout::HANDED_OUT].load(Ordering::Relaxed), 25);
}

#[test]
fn a_module_that_was_being_added_is_not_there() {
    let words = words(3);
    let part = Modules::new(&words);
    (0..3).for_each(|number| assert!(part.add(&module(number))));
    // As a kill before its last store leaves the second one.
    words[2 * layout::WORDS + layout::HEAD].store(0, Ordering::Relaxed);
    assert_eq!(
        modules(&words, layout::WORDS),
        (vec![module(0), module(2)], 0)
    );
    // An end before its begin.
    words[layout::WORDS + layout::BEGIN].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(modules(&words, layout::WORDS), (vec![module(2)], 1));
}

#[test]
fn build_ids_are_hexadecimal_and_bounded() {
    assert_eq!(BuildId::new(&[0xab, 0x01]).to_string(), "ab01");
    assert_eq!(BuildId::default().to_string(), "");
    assert_eq!(BuildId::new(&[7; 32]).as_bytes(), [7; 24]);
}

#[test]
fn threads_add_each_module_once() {
    const EACH: u64 = if cfg!(miri) { 4 } else { 200 };
    let words = words(4 * EACH as usize - 1);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let part = Modules::new(&words);
            scope.spawn(move || {
                for n in 0..EACH {
                    part.add(&module(thread * EACH + n));
                }
            });
        }
    });
    let (mut found, senseless) = modules(&words, layout::WORDS);
    found.sort_by_key(|module| module.begin);
    found.dedup();
    assert_eq!((found.len() as u64, senseless), (4 * EACH - 1, 0));
    assert!(
        found
            .iter()
            .all(|found| *found == module(found.begin >> 20))
    );
    assert_eq!(words[layout::CUT].load(Ordering::Relaxed), 1);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_words_are_survived(
        values in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..9, Just(1 << 63 | 20 << 32)], 0..90),
        each in 8_usize..12,
    ) {
        let words: Vec<_> = values.into_iter().map(AtomicU64::new).collect();
        let (found, senseless) = modules(&words, each);
        prop_assert!(found.len() as u64 + senseless <= words.len() as u64 / 8);
        prop_assert!(found.iter().all(|module| module.build_id.as_bytes().len() <= 24));
    }
}

//! The texts by themselves: against a list, with tiny capacities, with threads, and with damage.

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

fn words(count: usize) -> Vec<AtomicU64> {
    let count = layout::FIRST + count;
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn strings(words: &[AtomicU64]) -> Strings<'_, AtomicU64> {
    Strings::new(words, Index::for_entries(words.len() / 2).unwrap())
}

#[test]
fn a_text_is_kept_once_and_comes_back() {
    let words = words(40);
    let strings = strings(&words);
    let texts = [
        "",
        "a",
        "seven b",
        "eight by",
        "nine byte",
        "größer",
        "forward",
    ];
    let ids = texts.map(|text| strings.intern(text));
    assert_eq!(ids[0], layout::FIRST as u32);
    for (id, expected) in ids.iter().zip(texts) {
        assert_eq!(text(&words, *id).as_deref(), Some(expected));
        assert_eq!(strings.intern(expected), *id);
    }
    // A word for each length, and those of the texts.
    let reserved = words[layout::RESERVED].load(Ordering::Relaxed);
    assert_eq!(reserved, 8 * (7 + 1 + 1 + 1 + 2 + 1 + 1));
    assert_eq!(text(&words, 0), None);
    assert_eq!(text(&words, ids[6] + 1), None);
}

#[test]
fn a_long_text_is_shortened_to_whole_characters() {
    let words = words(3000);
    let strings = strings(&words);
    let fits = "x".repeat(layout::TEXT_MAX);
    assert_eq!(text(&words, strings.intern(&fits)), Some(fits));
    for start in ["", "x", "xx"] {
        // Three bytes each.
        let long = format!("{start}{}", "€".repeat(2000));
        let id = strings.intern(&long);
        let kept = text(&words, id).unwrap();
        assert!((layout::TEXT_MAX - 2..=layout::TEXT_MAX).contains(&kept.len()));
        assert!(long.starts_with(kept.strip_suffix('…').unwrap()));
        assert_eq!(strings.intern(&long), id);
    }
}

#[test]
fn a_text_without_its_length_is_not_there() {
    let words = words(4);
    let id = strings(&words).intern("killed");
    let head = &words[id as usize];
    // As a kill before the last store leaves it; a mark without sense; a length beyond the part.
    for word in [0, 6, layout::COMMITTED | 1 << 40, layout::COMMITTED | 999] {
        head.store(word, Ordering::Relaxed);
        assert_eq!(text(&words, id), None, "{word:x}");
    }
    // Bytes that are no text.
    head.store(layout::COMMITTED | 6, Ordering::Relaxed);
    words[id as usize + 1].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(text(&words, id), Some("\u{fffd}".repeat(6)));
}

#[test]
fn threads_that_intern_the_same_texts_get_the_same_ids() {
    const TEXTS: usize = if cfg!(miri) { 4 } else { 500 };
    let words = words(12 * TEXTS);
    let strings = strings(&words);
    let name = |n: usize| format!("aten::{n}");
    let ids: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let run = || (0..TEXTS).map(|n| strings.intern(&name(n))).collect();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        let ids = threads.into_iter().map(|thread| thread.join().unwrap());
        ids.collect()
    });
    assert!(ids.iter().all(|other| *other == ids[0]));
    for (n, id) in ids[0].iter().enumerate() {
        assert_eq!(text(&words, *id), Some(name(n)));
    }
    assert_eq!(words[layout::CUT].load(Ordering::Relaxed), 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Against a list of the texts and what they take, in a part of a limited number of words.
    #[test]
    fn as_a_naive_list(
        capacity in 0_usize..40,
        texts in prop::collection::vec("[ab]{0,3}|[a-c€]{6,12}", 0..40),
    ) {
        let words = words(capacity);
        let strings = strings(&words);
        let mut naive: Vec<(&str, u32)> = Vec::new();
        let (mut next, mut cut) = (layout::FIRST, 0);
        for name in &texts {
            let takes = 1 + name.len().div_ceil(8);
            let known = naive.iter().find(|(text, _)| text == name);
            let expected = match known {
                Some((_, id)) => *id,
                None if next + takes <= words.len() => {
                    naive.push((name, next as u32));
                    next += takes;
                    next as u32 - takes as u32
                }
                None => {
                    cut += 1;
                    0
                }
            };
            prop_assert_eq!(strings.intern(name), expected);
        }
        for (name, id) in naive {
            let found = text(&words, id);
            prop_assert_eq!(found.as_deref(), Some(name));
        }
        prop_assert_eq!(words[layout::CUT].load(Ordering::Relaxed), cut);
        prop_assert_eq!(words[layout::RESERVED].load(Ordering::Relaxed), 8 * (next - layout::FIRST) as u64);
    }

    #[test]
    fn any_words_are_survived(
        values in prop::collection::vec(
            prop_oneof![any::<u64>(), (0..80_u64).prop_map(|length| layout::COMMITTED | length)],
            0..40,
        ),
        id in prop_oneof![0_u32..50, any::<u32>()],
    ) {
        let words: Vec<_> = values.into_iter().map(AtomicU64::new).collect();
        if let Some(text) = text(&words, id) {
            // A byte that is no text becomes three.
            prop_assert!(text.len() <= 3 * 8 * words.len());
        }
    }
}

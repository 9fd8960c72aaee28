//! Every interleaving, for a tiny part: see [`explore`].

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::explore::{Crowded, Outcomes, crowd, explore, zeros};

fn part(count: usize) -> (&'static [Crowded], Arc<Strings<'static, Crowded>>) {
    let word = crowd();
    let words: &'static [Crowded] = Box::leak(zeros(&word, layout::FIRST + count));
    let strings = Strings::new(words, Index::over(zeros(&word, 4)));
    (words, Arc::new(strings))
}

#[test]
fn two_threads_with_the_same_text_agree() {
    explore(3, || {
        let (words, strings) = part(4);
        let other = Arc::clone(&strings);
        let other = thread::spawn(move || other.intern("same"));
        let id = strings.intern("same");
        assert_eq!(other.join().unwrap(), id);
        assert_eq!(text(words, id).as_deref(), Some("same"));
    });
}

#[test]
fn of_two_texts_for_the_last_place_one_is_cut() {
    explore(3, || {
        let (words, strings) = part(3);
        let other = Arc::clone(&strings);
        let other = thread::spawn(move || other.intern("one"));
        let ids = [strings.intern("another"), other.join().unwrap()];
        let texts = ids.map(|id| text(words, id));
        let another = [Some("another".to_string()), None];
        let one = [None, Some("one".to_string())];
        assert!(texts == another || texts == one, "{texts:?}");
        assert_eq!(Word::load(&words[layout::CUT], Ordering::Relaxed), 1);
    });
}

#[test]
fn a_reader_sees_a_text_whole_or_not_at_all() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    explore(3, move || {
        let (words, strings) = part(4);
        let seen = seen.clone();
        let reader = thread::spawn(move || {
            let found = text(words, layout::FIRST as u32);
            assert!(matches!(
                found.as_deref(),
                None | Some("longer than a word")
            ));
            seen.add(found.map_or(0, |text| text.len()));
        });
        assert_eq!(strings.intern("longer than a word"), layout::FIRST as u32);
        reader.join().unwrap();
    });
    assert_eq!(outcomes.all(), [0, 18]);
}

use super::pattern;
use super::pattern::{Birth, Enough, History, Rate};

fn births(of: impl IntoIterator<Item = (usize, u64)>) -> Vec<Birth> {
    of.into_iter()
        .map(|(iteration, bytes)| Birth {
            iteration,
            blocks: 1,
            bytes,
        })
        .collect()
}

fn left(of: impl IntoIterator<Item = (usize, u64)>, last: usize) -> Option<Rate> {
    rate(&births(of), last, &History::default())
}

fn rate(births: &[Birth], last: usize, history: &History) -> Option<Rate> {
    pattern::rate(births, last, history, Enough::FOUND)
}

#[test]
fn a_few_iterations_tell_if_the_user_set_them() {
    let set = |of: &[usize], last| {
        let births = births(of.iter().map(|at| (*at, 1000)));
        pattern::rate(&births, last, &History::default(), Enough::of_set(last))
    };
    for (of, last) in [
        (&[0, 1][..], 2),
        (&[0, 1, 2], 3),
        (&[1, 2, 3], 4),
        (&[0, 1, 2, 3, 4], 5),
        (&[0, 2, 4, 6, 8], 10),
    ] {
        let rate = set(of, last).unwrap_or_else(|| panic!("{of:?} {last}"));
        let every = (of[1] - of[0]) as f64;
        assert_eq!((rate.per_iteration, rate.every), (1000.0 / every, every));
    }
    // What the first ones made, and what a step hands to the next one.
    for (of, last) in [
        (&[0][..], 1),
        (&[0], 2),
        (&[1], 2),
        (&[0, 1], 4),
        (&[3], 4),
        (&[0, 3], 4),
    ] {
        assert_eq!(set(of, last), None, "{of:?} {last}");
    }
}

#[test]
fn each_iteration_or_each_nth_one() {
    let each = left((0..20).map(|at| (at, 1000)), 20).unwrap();
    assert_eq!(
        (each.per_iteration, each.every, each.from),
        (1000.0, 1.0, 0)
    );
    let third = left((0..20).step_by(3).map(|at| (at, 900)), 20).unwrap();
    assert_eq!((third.per_iteration, third.every), (300.0, 3.0));
    // It began in the middle, and is of different sizes.
    let late = left((10..30).map(|at| (at, 500 + 1000 * (at as u64 % 2))), 30).unwrap();
    assert!((late.per_iteration - 1000.0).abs() < 30.0 && late.from == 10);
    // What the first iteration made beside it does not count.
    let more = left(
        (0..20).map(|at| (at, if at == 0 { 9000 } else { 1000 })),
        20,
    )
    .unwrap();
    assert_eq!(more.per_iteration, 1000.0);
}

#[test]
fn what_is_of_some_iterations_is_not_left_behind() {
    // A cache that fills; the last iterations, in use; a workspace for each length; too few.
    assert_eq!(left((0..9).map(|at| (at, 1000)), 20), None);
    assert_eq!(left((15..20).map(|at| (at, 1000)), 20), None);
    let shapes = [0, 1, 2, 4, 7, 13, 19];
    assert_eq!(
        left(shapes.map(|at| (at, 1000 * (at as u64 + 1))), 20),
        None
    );
    assert_eq!(left([(0, 10), (9, 10)], 20), None);
    assert_eq!(left((0..7).map(|at| (at, 1000)), 7), None);
}

#[test]
fn what_comes_back_is_not_left_behind() {
    // A list that is emptied every tenth iteration: those since the last time are live.
    let mut history = History::default();
    for born in 0..20 {
        history.add(born, 10 - born % 10);
    }
    let live = births((20..29).map(|at| (at, 1000)));
    assert_eq!(rate(&live, 29, &history), None);
    // A sequence that is longer than those before it.
    let mut history = History::default();
    (0..8).for_each(|born| {
        history.add(born, 8 - born);
    });
    assert_eq!(
        rate(&births((8..40).map(|at| (at, 1000))), 40, &history),
        None
    );
    // What a step hands to the next one does not hide a leak.
    let mut history = History::default();
    (0..40).for_each(|born| {
        history.add(born, 2);
    });
    assert!(rate(&births((0..40).map(|at| (at, 1000))), 40, &history).is_some());
}

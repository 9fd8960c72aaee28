//! Prediction of the next number of a sequence that repeats.
//!
//! A training records the same few hundred stacks in each step, in the same order. The stack before
//! does not tell the next: all layers make it, and something else follows the last one. The place
//! in the step before tells it. So the last numbers are kept, and the place in them that is being
//! repeated.

use std::cell::Cell;
use std::iter;

/// Count of the numbers that are kept. A step of more is not predicted: GPT-2 has 1,054 allocations
/// in a step (`docs/measurements/2026-11-28-elastic-expandable.md`).
const LENGTH: usize = 1 << 15;
/// Most earlier places of the last number that are tried.
const TRIES: usize = 16;

/// The last numbers of a sequence. A value of zeros is an empty one; 0 is no number of it.
#[derive(Debug)]
pub struct History {
    numbers: [Cell<u16>; LENGTH],
    /// Place before it with the same number, for each place.
    earlier: [Cell<u16>; LENGTH],
    /// Place of the next number.
    end: Cell<u16>,
    /// Place of the number that is likely to be repeated next.
    expected: Cell<u16>,
    /// Place after the last number that was found: others may have come in between.
    left: Cell<u16>,
}

impl History {
    /// Returns a number that is likely to come next; 0 for none.
    #[inline]
    pub fn expected(&self) -> u16 {
        self.at(self.expected.get())
    }

    /// Finds the next number by `is`, among those that are likely to come next. It is then repeated
    /// from that place on.
    #[inline]
    pub fn find(&self, is: impl Fn(u16) -> bool) -> Option<u16> {
        let mut tried = 0;
        let mut is_next = |place: &u16| {
            let number = self.at(*place);
            let is_tried = std::mem::replace(&mut tried, number) == number;
            number != 0 && !is_tried && is(number)
        };
        let first = [self.expected.get(), self.left.get()].into_iter();
        let place = first.chain(self.after_last()).find(&mut is_next)?;
        self.expected.set(place);
        Some(self.at(place))
    }

    /// Places after the earlier places of the last number, the latest first.
    fn after_last(&self) -> impl Iterator<Item = u16> {
        let last = self.end.get().wrapping_sub(1);
        let number = self.at(last);
        let earlier = move |place: &u16| self.earlier.get(index(*place)).map(Cell::get);
        let places = iter::successors(Some(last), earlier).skip(1);
        let same = places.take_while(move |place| self.at(*place) == number);
        same.take(TRIES).map(|place| place.wrapping_add(1))
    }

    /// Adds a number. `latest` is the place at which it was added last, and becomes this one.
    /// `is_found`: [`History::find`] returned it.
    #[inline]
    pub fn add(&self, number: u16, latest: &Cell<u16>, is_found: bool) {
        let end = self.end.get();
        let earlier = latest.replace(end);
        if let (Some(numbers), Some(places)) =
            (self.numbers.get(index(end)), self.earlier.get(index(end)))
        {
            numbers.set(number);
            places.set(earlier);
        }
        self.end.set(end.wrapping_add(1));
        if is_found {
            self.left.set(self.expected.get().wrapping_add(1));
            self.expected.set(self.left.get());
        } else {
            self.expected.set(earlier.wrapping_add(1));
        }
    }

    /// Forgets all numbers, which may then stand for others.
    pub fn clear(&self) {
        let used = self.numbers.iter().take_while(|number| number.get() != 0);
        used.for_each(|number| number.set(0));
        self.end.set(0);
    }

    #[inline]
    fn at(&self, place: u16) -> u16 {
        self.numbers.get(index(place)).map_or(0, Cell::get)
    }
}

/// Index of a place. Places count on beyond the numbers that are kept.
#[inline]
fn index(place: u16) -> usize {
    usize::from(place) % LENGTH
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history, with the place of each number's last occurrence.
    struct Made {
        history: History,
        latest: Vec<Cell<u16>>,
    }

    impl Made {
        fn new() -> Made {
            let zeros = || [const { Cell::new(0) }; LENGTH];
            let history = History {
                numbers: zeros(),
                earlier: zeros(),
                end: Cell::new(0),
                expected: Cell::new(0),
                left: Cell::new(0),
            };
            let latest = vec![Cell::new(0); 100];
            Made { history, latest }
        }

        /// Adds numbers. Returns how many were the expected one, and how many were not found.
        fn add(&self, numbers: impl IntoIterator<Item = u16>) -> (usize, usize) {
            let (mut expected, mut missed) = (0, 0);
            for number in numbers {
                expected += usize::from(self.history.expected() == number);
                let found = self.history.find(|likely| likely == number);
                missed += usize::from(found.is_none());
                let latest = &self.latest[usize::from(number)];
                self.history.add(number, latest, found.is_some());
            }
            (expected, missed)
        }
    }

    /// A step: the layers make the same numbers, and the last is followed by others.
    fn step() -> Vec<u16> {
        let layers = [1, 2, 2, 3, 4].repeat(12);
        [&[9, 8, 2][..], &layers, &[2, 4, 9, 5, 1, 9], &layers, &[7]].concat()
    }

    #[test]
    fn a_step_that_repeats_is_expected() {
        let made = Made::new();
        let (expected, missed) = made.add(step());
        assert!(expected > 90 && missed < 20, "{expected} {missed}");
        // Nothing came after the last number yet, and another number came after the last 9.
        let length = step().len();
        assert_eq!(made.add(step()), (length - 2, 1));
        // Past the last place.
        for _ in 0..600 {
            assert_eq!(made.add(step()), (length, 0));
        }
    }

    #[test]
    fn a_step_that_differs_once_is_expected_again() {
        let made = Made::new();
        made.add([step(), step(), step()].concat());
        let (begin, end) = (&step()[..40], &step()[40..]);
        let begin = made.add(begin.iter().copied());
        assert_eq!(begin.1, 0);
        assert_eq!(made.add([50, 51]), (0, 2));
        // The first is found, and all after it are expected.
        assert_eq!(made.add(end.iter().copied()), (end.len() - 1, 0));
        // The step that differed is expected once more.
        let length = step().len();
        assert_eq!(made.add(step()), (length - 5, 3));
        assert_eq!(made.add(step()), (length, 0));
    }

    #[test]
    fn numbers_that_are_forgotten_are_not_found() {
        let made = Made::new();
        made.add(step());
        made.history.clear();
        assert_eq!(made.history.find(|_| true), None);
        assert_eq!(made.add([1, 2, 1, 2, 1, 2]).1, 3);
    }
}

//! The events of a frame as columns of small numbers, which compress well.
//!
//! Numbers are written seven bits to a byte, the lowest first, the top bit set on all bytes but the
//! last. Differences are written as `2 d` or, below zero, `-2 d - 1`.
//!
//! A *table* column has two parts. The first has, for each event, the place of its value in the
//! order in which values first came. The second has these values, each as the difference from the
//! one before.

use rustc_hash::FxHashMap;

use crate::event::{Class, Cost, Layer};
use crate::kind::Kind;
use crate::leb128::{put, take};

/// Encoder of frames; keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Encoder {
    table: FxHashMap<u64, u32>,
    values: Vec<u64>,
    coded: Vec<[u64; 3]>,
    sizes: FxHashMap<u64, u64>,
}

impl Encoder {
    /// Appends the columns of events, which are in the order of time from `first` on.
    pub fn encode<'a>(
        &mut self,
        first: u64,
        events: impl Iterator<Item = &'a [u64; 7]> + Clone,
        to: &mut Vec<u8>,
    ) {
        let mut last = first;
        for [ticks, ..] in events.clone() {
            put(to, ticks.wrapping_sub(last));
            last = *ticks;
        }
        self.column(to, events.clone().map(|words| words[1]));
        self.column(to, events.clone().map(|words| words[2] & 0xffff_ffff));
        self.column(to, events.clone().map(|words| words[2] >> 32));
        self.column(to, events.clone().map(|words| words[3]));
        let mut guess = Guess::with(std::mem::take(&mut self.sizes));
        let mut coded = std::mem::take(&mut self.coded);
        coded.clear();
        coded.extend(events.map(|words| guess.encode(words)));
        self.sizes = guess.sizes;
        self.column(to, coded.iter().map(|[size, ..]| *size));
        self.column(to, coded.iter().map(|[_, first, _]| *first));
        self.column(to, coded.iter().map(|[.., second]| *second));
        self.coded = coded;
    }

    /// Appends a table column: places, then values.
    fn column(&mut self, to: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
        self.table.clear();
        self.values.clear();
        for value in values {
            let next = self.values.len() as u32;
            let place = *self.table.entry(value).or_insert(next);
            if place == next {
                self.values.push(value);
            }
            put(to, u64::from(place));
        }
        let mut last = 0;
        for value in &self.values {
            put(to, zigzag(value.wrapping_sub(last)));
            last = *value;
        }
    }
}

/// Returns the words of `count` events, from the columns of a frame and its first ticks.
pub fn decode(mut from: &[u8], count: usize, first: u64) -> Option<Vec<[u64; 7]>> {
    let mut events = vec![[0; 7]; count];
    let mut ticks = first;
    for event in &mut events {
        ticks = ticks.wrapping_add(take(&mut from)?);
        event[0] = ticks;
    }
    for (word, shift) in [(1, 0), (2, 0), (2, 32), (3, 0), (4, 0), (5, 0), (6, 0)] {
        let values = table(&mut from, count)?;
        for (event, value) in events.iter_mut().zip(values) {
            event[word] |= value << shift;
        }
    }
    let mut guess = Guess::with(FxHashMap::default());
    events.iter_mut().for_each(|event| guess.decode(event));
    from.is_empty().then_some(events)
}

/// Returns the values of a table column.
fn table(from: &mut &[u8], count: usize) -> Option<Vec<u64>> {
    let mut places = Vec::with_capacity(count);
    let mut known = 0;
    for _ in 0..count {
        let place = take(from)?;
        if place > known {
            return None;
        }
        known += u64::from(place == known);
        places.push(place);
    }
    let mut values = Vec::with_capacity(count);
    let mut last = 0_u64;
    for _ in 0..known {
        last = last.wrapping_add(unzigzag(take(from)?));
        values.push(last);
    }
    places
        .into_iter()
        .map(|place| values.get(place as usize).copied())
        .collect()
}

/// Prediction of the size and the two last words of an event, by the events before it.
struct Guess {
    /// Size that was last seen at an address.
    sizes: FxHashMap<u64, u64>,
    /// Allocated and reserved bytes of a framework.
    framework: [u64; 2],
}

impl Guess {
    fn with(mut sizes: FxHashMap<u64, u64>) -> Guess {
        sizes.clear();
        Guess {
            sizes,
            framework: [0; 2],
        }
    }

    /// Returns the size and the two last words, each as 0 if it was predicted.
    fn encode(&mut self, words: &[u64; 7]) -> [u64; 3] {
        let [_, head, _, address, size, first, second] = *words;
        let expected = self.sizes.insert(address, size).unwrap_or(0);
        let [first, second] = match Sort::of(head) {
            Sort::Block => [first, cost_out(second, size)],
            Sort::Tensor(sign) => {
                let [allocated, reserved] = self.framework;
                self.framework = [first, second];
                let allocated = allocated.wrapping_add(size.wrapping_mul(sign));
                [swapped(first, allocated), swapped(second, reserved)]
            }
            Sort::Other => [first, second],
        };
        [swapped(size, expected), first, second]
    }

    /// Reverses [`Guess::encode`], in place.
    fn decode(&mut self, words: &mut [u64; 7]) {
        let [_, head, _, address, size, first, second] = words;
        let place = self.sizes.entry(*address).or_insert(0);
        *size = swapped(*size, *place);
        *place = *size;
        match Sort::of(*head) {
            Sort::Block => *second = cost_in(*second, *size),
            Sort::Tensor(sign) => {
                let [allocated, reserved] = self.framework;
                let allocated = allocated.wrapping_add(size.wrapping_mul(sign));
                *first = swapped(*first, allocated);
                *second = swapped(*second, reserved);
                self.framework = [*first, *second];
            }
            Sort::Other => {}
        }
    }
}

/// Meaning of the two last words of an event.
enum Sort {
    /// The second word is a cost.
    Block,
    /// The words are a framework's sums, after the size was added this many times.
    Tensor(u64),
    Other,
}

impl Sort {
    fn of(head: u64) -> Sort {
        let is_tensor = Class::from_number((head >> 8) as u8).layer() == Layer::Tensor;
        match Kind::from_number(head as u8) {
            Kind::Alloc | Kind::Free if !is_tensor => Sort::Block,
            Kind::TensorAlloc => Sort::Tensor(1),
            Kind::TensorFree => Sort::Tensor(u64::MAX),
            _ => Sort::Other,
        }
    }
}

/// Returns a value with 0 and the expected value exchanged. Its own inverse.
fn swapped(value: u64, expected: u64) -> u64 {
    if value == expected {
        0
    } else if value == 0 {
        expected
    } else {
        value
    }
}

/// Returns a cost without the block predicted from its size, with its time in the low bits.
fn cost_out(cost: u64, size: u64) -> u64 {
    cost.wrapping_sub(Cost::pack(0, size)).rotate_left(32)
}

fn cost_in(rest: u64, size: u64) -> u64 {
    rest.rotate_left(32).wrapping_add(Cost::pack(0, size))
}

pub fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (((difference as i64) >> 63) as u64)
}

pub fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn word() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            0..4_u64,
            Just(0),
            Just(u64::MAX),
            Just(1 << 33)
        ]
    }

    /// Heads of the kinds that are treated in a way of their own, and any other.
    fn head() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            Just(1),
            Just(2),
            Just(8 | 13 << 8),
            Just(9 | 13 << 8),
            Just(2 | 13 << 8)
        ]
    }

    proptest! {
        #[test]
        fn all_words_come_back(
            mut events in prop::collection::vec((word(), head(), word(), word(), word(), word(), word()), 0..60),
        ) {
            events.sort();
            let events: Vec<[u64; 7]> = events.into_iter().map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g]).collect();
            let first = events.first().map_or(0, |words| words[0]);
            let mut bytes = Vec::new();
            Encoder::default().encode(first, events.iter(), &mut bytes);
            prop_assert_eq!(decode(&bytes, events.len(), first), Some(events.clone()));
            // Cut off, or with something behind, it is not taken for whole.
            for cut in 0..bytes.len() {
                prop_assert_eq!(decode(&bytes[..cut], events.len(), first), None);
            }
            bytes.push(0);
            prop_assert_eq!(decode(&bytes, events.len(), first), None);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0..50_usize) {
            let _ = decode(&bytes, count, 7);
        }

        #[test]
        fn numbers_round_trip(number in word()) {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            prop_assert_eq!(take(&mut bytes.as_slice()), Some(number));
            prop_assert_eq!(unzigzag(zigzag(number)), number);
        }
    }
}

//! Numbers of the streams for which tensors are made: the events of tensors have room for one byte.

use std::sync::atomic::{AtomicU64, Ordering};

use gpushim_trace::{Event, stream_fact};

use crate::record::trace;

/// Number of a stream whose handle is unknown, and of streams beyond the table.
pub const UNKNOWN: u8 = 0;
/// Least number that the table gives; the number below it is the default stream's.
const FIRST: usize = Event::DEFAULT_STREAM as usize + 1;
/// Number of streams in the table.
const PLACES: usize = u8::MAX as usize + 1 - FIRST;

/// Numbers that this process has given.
static NUMBERS: Numbers = Numbers::new();

/// Returns the number of a stream; 0 is the handle of the default stream. The first call for a
/// handle adds a fact to the trace, later ones read a word or two.
pub fn number(handle: u64) -> u8 {
    NUMBERS.number(handle, |number| {
        let (key, value) = stream_fact(number, handle);
        trace::fact(&key, &value);
    })
}

/// Handles that have numbers. The place of a handle gives its number. Entries are only ever added.
struct Numbers([AtomicU64; PLACES]);

impl Numbers {
    const fn new() -> Numbers {
        Numbers([const { AtomicU64::new(0) }; PLACES])
    }

    /// Returns the number of a handle. `is_new` is called with a number that was not given before.
    #[inline]
    fn number(&self, handle: u64, is_new: impl FnOnce(u8)) -> u8 {
        if handle == 0 {
            return Event::DEFAULT_STREAM;
        }
        let start = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES;
        let (before, from) = self.0.split_at(start);
        let order = from.iter().zip(start..).chain(before.iter().zip(0..));
        for (word, place) in order {
            let mut held = word.load(Ordering::Relaxed);
            let mut is_ours = false;
            if held == 0 {
                // Relaxed: a place guards no other memory.
                match word.compare_exchange(0, handle, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => (held, is_ours) = (handle, true),
                    Err(other) => held = other,
                }
            }
            if held == handle {
                let number = (place + FIRST) as u8;
                if is_ours {
                    is_new(number);
                }
                return number;
            }
        }
        UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn each_stream_has_its_number_until_the_table_is_full() {
        let numbers = Numbers::new();
        let mut given = HashMap::new();
        assert_eq!(
            numbers.number(0, |_| panic!("the default stream is not named")),
            1
        );
        // Handles are addresses of structures of one size.
        let handle = |n: u64| 0x55d0_1234_0000 + n * 0x2f0;
        for n in 0..PLACES as u64 {
            let number = numbers.number(handle(n), |number| {
                assert_eq!(given.insert(number, n), None)
            });
            assert_eq!(given.get(&number), Some(&n));
        }
        assert_eq!(given.len(), PLACES);
        assert!(!given.contains_key(&UNKNOWN) && !given.contains_key(&Event::DEFAULT_STREAM));
        assert_eq!(
            numbers.number(handle(1000), |_| panic!("it is full")),
            UNKNOWN
        );
        for n in 0..PLACES as u64 {
            let number = numbers.number(handle(n), |_| panic!("it had one"));
            assert_eq!(given.get(&number), Some(&n));
        }
    }

    #[test]
    fn threads_agree_on_the_numbers() {
        let numbers = Numbers::new();
        let all = || -> Vec<(u8, u8)> {
            let one = |n: u64| {
                let mut named = UNKNOWN;
                let number = numbers.number((n + 1) << 12, |number| named = number);
                (number, named)
            };
            (0..100).map(one).collect()
        };
        let (mine, other) = std::thread::scope(|scope| {
            let other = scope.spawn(all);
            (all(), other.join().expect("no panic"))
        });
        for ((number, named), (same, also_named)) in mine.into_iter().zip(other) {
            assert_eq!(number, same);
            // One of the two threads names it.
            assert_eq!(
                [named, also_named]
                    .iter()
                    .filter(|&&named| named == number)
                    .count(),
                1
            );
        }
    }
}

//! Random runs compared with sums kept in the plainest way, and runs killed at every store.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;
use crate::clock::{Calibration, Pair};
use crate::{Class, Cost, Kind, flags};

/// Clock with one tick per ns.
const CLOCK: Calibration = Calibration {
    start: Pair { ticks: 1000, ns: 0 },
    later: Pair {
        ticks: 2_001_000,
        ns: 2_000_000,
    },
};

fn event(kind: Kind, device: u8, size: u64) -> Event {
    let class = match kind {
        Kind::TensorAlloc | Kind::TensorFree => Class::Tensor,
        _ => Class::Device,
    };
    let extra = match kind {
        Kind::Alloc | Kind::Free => [0, Cost::pack(0, size + 100)],
        Kind::TensorAlloc | Kind::TensorFree => [size * 3, size * 5],
        _ => [size / 2, 0],
    };
    Event {
        device,
        size,
        extra,
        ..Event::new(kind, class)
    }
}

fn read(words: &[AtomicU64]) -> Timeline {
    let (words, mut ledger) = Ledger::resume(words).unwrap();
    ledger.timeline(&words, CLOCK, true)
}

/// Values of all series at each moment, by ticks, kept in the plainest way.
#[derive(Default)]
struct Plain(Vec<(u64, [Option<i64>; SERIES])>);

impl Plain {
    fn feed(&mut self, ticks: u64, one: &Event) {
        let mut now = self.0.last().map_or(Default::default(), |(_, now)| *now);
        for series in &mut now[..3] {
            series.get_or_insert(0);
        }
        let mut add = |series: Series, bytes: i64| *now[series as usize].as_mut().unwrap() += bytes;
        let (size, block) = (one.size as i64, (one.size + 100).div_ceil(512) as i64 * 512);
        let forwarded = if one.flags & flags::FORWARDED != 0 {
            block
        } else {
            0
        };
        match one.kind {
            Kind::Alloc => {
                add(Series::Requested, size);
                add(Series::Allocated, block);
                add(Series::Reserved, forwarded);
            }
            Kind::Free => {
                add(Series::Requested, -size);
                add(Series::Allocated, -block);
                add(Series::Reserved, -forwarded);
            }
            Kind::Reserve => add(Series::Reserved, size),
            Kind::Release => add(Series::Reserved, -size),
            Kind::DeviceMemory => now[Series::Driver as usize] = Some(size),
            Kind::TensorAlloc => {
                now[Series::Tensors as usize] = Some(size * 3);
                now[Series::TensorsReserved as usize] = Some(size * 5);
            }
            other => panic!("{other:?}"),
        }
        self.0.push((ticks, now));
    }

    /// Returns the extremes between two moments, including the value at the first one.
    fn extremes(&self, series: Series, from: u64, to: u64) -> Option<(u64, u64)> {
        let before = self.0.iter().rev().find(|(ticks, _)| *ticks < from);
        let within = self
            .0
            .iter()
            .filter(|(ticks, _)| (from..to).contains(ticks));
        let values = before
            .into_iter()
            .chain(within)
            .filter_map(|(_, now)| now[series as usize]);
        let values: Vec<u64> = values.map(|value| value.max(0) as u64).collect();
        Some((*values.iter().min()?, *values.iter().max()?))
    }
}

fn kinds() -> impl Strategy<Value = (Kind, bool)> {
    let kind = prop_oneof![
        Just(Kind::Alloc),
        Just(Kind::Free),
        Just(Kind::Reserve),
        Just(Kind::Release),
        Just(Kind::DeviceMemory),
        Just(Kind::TensorAlloc),
    ];
    (kind, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    #[cfg_attr(miri, ignore = "slow")]
    fn every_bucket_has_the_extremes_of_its_time(
        steps in prop::collection::vec((kinds(), 1..1_u64 << 20, 0..1_u64 << 34, 0..5_u32), 1..200),
        commit in 1..20_usize,
    ) {
        let words = Ledger::words();
        let mut ledger = Ledger::create(&words, 1000);
        let (mut plain, mut ticks) = (Plain::default(), 1000);
        for (index, ((kind, forwarded), size, pause, scale)) in steps.iter().enumerate() {
            ticks += pause >> (scale * 8);
            let mut one = event(*kind, 3, *size);
            if *forwarded {
                one.flags = flags::FORWARDED;
            }
            ledger.feed(&words, ticks, &one);
            // No event precedes the first one.
            if plain.0.is_empty() {
                plain.0.push((ticks, [Some(0), Some(0), Some(0), None, None, None]));
            }
            plain.feed(ticks, &one);
            if index % commit == 0 {
                ledger.commit(&words);
            }
        }
        ledger.commit(&words);
        let timeline = read(&words);
        prop_assert_eq!(timeline.devices.len(), 1);
        for series in Series::ALL {
            let spans = timeline.devices[0].get(series);
            prop_assert_eq!(spans.is_empty(), plain.0.last().unwrap().1[series as usize].is_none());
            prop_assert!(spans.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns), "without gaps");
            prop_assert!(spans.len() <= BUCKETS);
            for span in spans {
                let truth = plain.extremes(series, span.from_ns + 1000, span.to_ns + 1000);
                prop_assert_eq!(Some((span.min, span.max)), truth, "{:?} {:?}", series, span);
            }
        }
    }
}

/// A word that no longer changes after a number of stores: the process was killed there.
struct Mortal(AtomicU64);

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

impl Word for Mortal {
    fn load(&self, order: Ordering) -> u64 {
        Word::load(&self.0, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        if left > 0 {
            Word::store(&self.0, value, order);
        }
    }
    fn fetch_add(&self, _: u64, _: Ordering) -> u64 {
        unreachable!()
    }
    fn swap_if(&self, _: u64, _: u64, _: Ordering) -> bool {
        unreachable!()
    }
    fn fence(_: Ordering) {}
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn a_kill_at_any_store_leaves_books_that_can_be_continued() {
    let width = 1 << FIRST_SHIFT;
    // One merge happens with the event at bucket 1,024, two with that at 5,000.
    const MERGES: u64 = 3;
    let events: Vec<(u64, Event)> = [3, 5, 900, 1023, 1024, 1025, 5000, 5001]
        .into_iter()
        .zip(1..)
        .map(|(bucket, number)| {
            (
                1000 + bucket * width + number,
                event(Kind::Alloc, 0, number << 20),
            )
        })
        .collect();
    let run = |left: u64| {
        LEFT.set(u64::MAX);
        let words: Vec<Mortal> = Ledger::words().into_iter().map(Mortal).collect();
        let mut ledger = Ledger::create(&words, 1000);
        LEFT.set(left);
        for (index, (ticks, event)) in events.iter().enumerate() {
            ledger.feed(&words, *ticks, event);
            if index % 2 == 1 {
                ledger.commit(&words);
            }
        }
        let stores = left - LEFT.get();
        assert_eq!(ledger.shift, FIRST_SHIFT + MERGES);
        let words: Vec<AtomicU64> = words.into_iter().map(|word| word.0).collect();
        let (words, mut ledger) = Ledger::resume(&words).unwrap();
        let after = ledger.upto();
        let rest = events.iter().filter(|(ticks, _)| *ticks > after);
        rest.for_each(|(ticks, event)| ledger.feed(&words, *ticks, event));
        (stores, ledger.timeline(&words, CLOCK, true))
    };
    let (stores, truth) = run(u64::MAX);
    // A merge stores all of the first half of the buckets, and the non-zero words of the second
    // half.
    assert!(stores > MERGES * HALF_WORDS as u64 / 2);
    assert!(truth.devices[0].get(Series::Allocated).len() > 600);
    // The stores of a merge are alike: only some of the kills within one are tried.
    let mut killed = 0;
    while killed < stores {
        assert_eq!(
            run(killed).1,
            truth,
            "killed after store {killed} of {stores}"
        );
        killed += if killed % 997 < 40 { 1 } else { 331 };
    }
}

#[test]
fn sums_are_taken_anew_after_a_gap() {
    let words = Ledger::words();
    let mut ledger = Ledger::create(&words, 1000);
    ledger.feed(&words, 1100, &event(Kind::Alloc, 0, 1000));
    ledger.gap();
    assert!(ledger.is_unsure);
    let current = Current {
        device: 0,
        requested: 5000,
        allocated: 6000,
        reserved: Some(6000),
    };
    let unnamed = Current {
        device: Event::NO_DEVICE,
        reserved: Some(1000),
        ..Current::default()
    };
    ledger.resync(&words, (1900, 2000), &[current, unnamed]);
    assert!(!ledger.is_unsure);
    // This event is in the sums already.
    ledger.feed(&words, 1900, &event(Kind::Alloc, 0, 77));
    assert!(!ledger.is_unsure);
    ledger.feed(&words, 2001, &event(Kind::Free, 0, 1000));
    ledger.commit(&words);
    let timeline = read(&words);
    assert_eq!(timeline.gaps, 1);
    let spans = |series| {
        timeline.devices[0]
            .get(series)
            .iter()
            .map(|span| (span.min, span.max))
            .collect::<Vec<_>>()
    };
    assert_eq!(spans(Series::Requested), [(0, 5000)]);
    assert_eq!(ledger.devices[0].get(Series::Requested), 4000);
    assert_eq!(ledger.devices[0].get(Series::Allocated), 6000 - 1536);
    assert_eq!(spans(Series::Reserved), [(0, 7000)]);
    // The sums must be taken again in two cases: an event in between may or may not be in them, or
    // a sum is unknown.
    ledger.resync(&words, (3000, 3100), &[current]);
    ledger.feed(&words, 3050, &event(Kind::Alloc, 0, 77));
    assert!(ledger.is_unsure);
    assert_eq!(ledger.devices[0].get(Series::Requested), 5000);
    let unknown = Current {
        reserved: None,
        ..current
    };
    ledger.resync(&words, (4000, 4100), &[unknown]);
    assert!(ledger.is_unsure);
    assert_eq!(ledger.devices[0].get(Series::Reserved), 6000);
    ledger.resync(&words, (5000, 5100), &[current]);
    assert!(!ledger.is_unsure);
}

/// An event without a series also advances the time: no bucket before it stays empty.
#[test]
fn other_events_leave_no_hole() {
    let words = Ledger::words();
    let mut ledger = Ledger::create(&words, 1000);
    ledger.feed(&words, 2000, &event(Kind::Reserve, 0, 4096));
    ledger.feed(&words, 1000 + (40 << FIRST_SHIFT), &event(Kind::Mark, 0, 0));
    ledger.commit(&words);
    let timeline = read(&words);
    let spans = timeline.devices[0].get(Series::Reserved);
    assert!(spans.iter().all(|span| span.max == 4096), "{spans:?}");
    let joined = spans.windows(2).all(|two| two[0].to_ns == two[1].from_ns);
    let end = spans.last().map(|span| span.to_ns);
    assert!(joined && end > Some(40 << FIRST_SHIFT), "{spans:?}");
}

#[test]
fn a_context_takes_its_memory_along() {
    let words = Ledger::words();
    let mut ledger = Ledger::create(&words, 1000);
    ledger.feed(&words, 1001, &event(Kind::Reserve, 0, 2 << 20));
    for _ in 0..4 {
        ledger.feed(&words, 1002, &event(Kind::Alloc, 0, 412));
    }
    let gone = |bytes| Event {
        extra: [bytes * 2, 0],
        ..event(Kind::ContextGone, Event::NO_DEVICE, bytes)
    };
    ledger.feed(&words, 1003, &gone(1024));
    assert!(ledger.is_unsure, "what was asked for is a guess");
    let now = |ledger: &Ledger| {
        [Series::Requested, Series::Allocated, Series::Reserved]
            .map(|series| ledger.devices[0].get(series))
    };
    assert_eq!(now(&ledger), [824, 1024, (2 << 20) - 2048]);
    ledger.feed(&words, 1004, &gone(1024));
    assert_eq!(now(&ledger)[..2], [0, 0]);
    // With a second device, the context's device is unknown.
    ledger.feed(&words, 1005, &event(Kind::Alloc, 1, 412));
    ledger.feed(&words, 1006, &gone(512));
    assert_eq!((now(&ledger)[1], ledger.unplaced), (0, 1));
}

#[test]
fn devices_beyond_those_told_apart_are_counted() {
    let words = Ledger::words();
    let mut ledger = Ledger::create(&words, 1000);
    for device in 0..10 {
        ledger.feed(&words, 1001, &event(Kind::Alloc, device, 1));
    }
    ledger.commit(&words);
    let timeline = read(&words);
    assert_eq!((timeline.devices.len(), timeline.unplaced), (DEVICES, 2));
    assert_eq!(timeline.devices[7].device, 7);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    #[cfg_attr(miri, ignore = "slow")]
    fn damaged_words_are_survived(
        damage in prop::collection::vec((prop_oneof![0..8 + 2 * words::STATE_WORDS, 0..BYTES / 8], any::<u64>(), 0..64_u32), 0..20),
        length in prop_oneof![Just(BYTES / 8), 0..BYTES / 8],
    ) {
        let words = Ledger::words();
        let mut ledger = Ledger::create(&words, 1000);
        (0..50).for_each(|number| ledger.feed(&words, 1000 + (number << 20), &event(Kind::Alloc, 0, 1)));
        ledger.commit(&words);
        for (at, value, shift) in damage {
            words[at].store(value >> shift, Ordering::Relaxed);
        }
        if let Some((words, mut ledger)) = Ledger::resume(&words[..length]) {
            ledger.feed(&words, u64::MAX, &event(Kind::Free, 200, u64::MAX / 4));
            let timeline = ledger.timeline(&words, CLOCK, true);
            prop_assert!(timeline.devices.len() <= DEVICES);
        }
    }
}

#[test]
fn one_that_is_cut_off_has_the_buckets_that_are_there() {
    let words = Ledger::words();
    let mut ledger = Ledger::create(&words, 1000);
    ledger.feed(&words, 2000, &event(Kind::Alloc, 0, 512));
    ledger.commit(&words);
    let whole = read(&words);
    assert_eq!(whole.devices[0].get(Series::Requested)[0].max, 512);
    // The first bucket is the only one.
    let used = half_at(0) + DEVICES * SERIES * 2;
    assert_eq!(read(&words[..used]), whole);
    for cut in 0..used {
        if let Some((words, mut ledger)) = Ledger::resume(&words[..cut]) {
            ledger.timeline(&words, CLOCK, false);
        }
    }
}

#[test]
fn counts_of_a_damaged_file_do_not_go_over() {
    let words = Ledger::words();
    Ledger::create(&words, 1000);
    for copy in 0..2 {
        put(
            &words,
            words::STATE + copy * words::STATE_WORDS + words::UNPLACED,
            u64::MAX,
        );
    }
    let (words, mut ledger) = Ledger::resume(&words).unwrap();
    ledger.feed(&words, 2000, &event(Kind::Alloc, Event::NO_DEVICE, 512));
    assert_eq!(ledger.timeline(&words, CLOCK, true).unplaced, u64::MAX);
}

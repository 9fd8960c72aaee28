//! Iterations by the rise and fall of live memory, which returns to the same level each time.

use super::{By, Repetitions, Start};
use crate::ledger::Focus;
use gpushim_trace::{Effect, Event, Record};

/// The run is divided into this many parts of equally many events. The result is that of most parts, so that the start
/// and the end of the run do not count.
const STRETCHES: u64 = 8;
/// Fewer are no iterations: any program rises and falls a few times.
const LEAST: usize = 6;
/// A rise or fall counts if it is this part of what is usual: batches may be of a quarter of the largest
/// one's size.
const PART: f64 = 0.2;
/// Waves that are remembered, 32 bytes each; of more the smallest are forgotten.
const WAVES: usize = 1 << 20;

/// How near to the lowest level a rise must begin, as a part of the usual one.
const RETURNS: f64 = 0.01;

/// How many must be about as long as usual for those that are not to be of another kind, and which those are.
const REGULAR: f64 = 0.6;
const SHORT: f64 = 0.8;
/// A small batch may rise by this part of what counts, inversely.
const FINE: i64 = 8;
/// Parts of an iteration come to no more than the usual length of one, in events, by this factor.
const LONG: f64 = 1.1;

/// The rises and falls of a run.
#[derive(Debug)]
pub struct Cycles {
    /// How many there are, which is the most iterations that there can be.
    pub most: u64,
    /// Those that begin where memory is lowest: within an iteration it rises and falls, too.
    pub whole: Option<Repetitions>,
}

/// The rises that begin where memory is lowest, of those before or of those after. What is kept from iteration to
/// iteration makes that level rise, and what a run gives up makes it fall.
fn whole(waves: &[Wave], fine: &[Wave], tolerance: i64) -> Vec<Wave> {
    let lowest = |low: &mut i64, wave: &Wave| {
        *low = wave.low.min(*low);
        Some(*low)
    };
    let before = waves.iter().scan(i64::MAX, lowest);
    let mut after: Vec<i64> = waves.iter().rev().scan(i64::MAX, lowest).collect();
    after.reverse();
    let levels = before.zip(after);
    let is_whole = |(wave, (before, after)): &(&Wave, (i64, i64))| {
        wave.low <= before.max(after).saturating_add(tolerance)
    };
    let waves = waves.iter().zip(levels).filter(is_whole);
    let waves: Vec<Wave> = waves.map(|(wave, _)| *wave).collect();
    // A short one belongs to the one before: an evaluation after it, or a part of one of the first iterations, which
    // make what is kept.
    let distance = |one: &Wave, other: &Wave| other.start.ticket.saturating_sub(one.start.ticket);
    let mut distances: Vec<u64> = waves
        .windows(2)
        .filter_map(|pair| Some(distance(pair.first()?, pair.last()?)))
        .collect();
    distances.sort_unstable();
    let usual = distances.get(distances.len() / 2).copied().unwrap_or(0);
    // The farthest that is no longer than usual, or else the next one.
    let mut whole: Vec<Wave> = Vec::new();
    for wave in waves {
        let [.., before, last] = &whole[..] else {
            whole.push(wave);
            continue;
        };
        let is_part = (distance(before, &wave) as f64) <= LONG * usual as f64;
        if is_part && distance(before, last) < usual {
            whole.pop();
        }
        whole.push(wave);
    }
    let mut whole = with_small(whole, fine, usual, tolerance);
    // Where most are as long as each other, a shorter one is no iteration, but what follows one: an evaluation.
    let lengths: Vec<u64> = (whole.windows(2))
        .filter_map(|pair| Some(distance(pair.first()?, pair.last()?)))
        .collect();
    let is_usual = |length: &&u64| {
        (**length as f64) <= LONG * usual as f64 && **length as f64 >= usual as f64 / LONG
    };
    if lengths.iter().filter(is_usual).count() as f64 >= REGULAR * lengths.len() as f64 {
        let mut lengths = lengths.into_iter();
        let short = |length: u64| (length as f64) < SHORT * usual as f64;
        let mut is_first = true;
        whole.retain(|_| {
            let is_short = lengths.next().is_some_and(short);
            !is_short || std::mem::take(&mut is_first)
        });
    }
    whole
}

/// With those between them that rise less, where one is missing: batches may be small.
fn with_small(whole: Vec<Wave>, fine: &[Wave], usual: u64, tolerance: i64) -> Vec<Wave> {
    let mut all: Vec<Wave> = Vec::new();
    let mut fine = fine.iter().peekable();
    for wave in whole {
        if let Some(mut last) = all.last().copied() {
            let floor = last.low.max(wave.low).saturating_add(tolerance / 2);
            let mut between: Vec<Wave> = Vec::new();
            while let Some(small) = fine.next_if(|small| small.start.ticket < wave.start.ticket) {
                if small.start.ticket > last.start.ticket && small.low <= floor {
                    between.push(*small);
                }
            }
            let mut between = between.into_iter().rev().collect::<Vec<_>>();
            while let Some(small) = between.pop() {
                let passed = small.start.ticket - last.start.ticket;
                let rest = wave.start.ticket - small.start.ticket;
                let is_near = |distance: u64| distance as f64 >= usual as f64 / LONG;
                let fits = passed as f64 <= LONG * usual as f64 || between.is_empty();
                if is_near(passed) && is_near(rest) && fits {
                    all.push(small);
                    last = small;
                }
            }
        }
        all.push(wave);
    }
    all
}

/// The usual depth of a fall of live memory, and the lowest level.
#[derive(Debug)]
pub struct Swing {
    /// Events of a stretch.
    each: u64,
    /// Events so far.
    events: u64,
    now: i64,
    highest: i64,
    deepest: i64,
    /// The deepest fall within each stretch, bytes.
    falls: Vec<i64>,
    waves: Waves,
    last: Start,
}

impl Swing {
    /// For a run of `events` events.
    pub fn new(events: u64) -> Swing {
        Swing {
            each: (events / STRETCHES).max(1),
            events: 0,
            now: 0,
            highest: 0,
            deepest: 0,
            falls: Vec::new(),
            waves: Waves::of_height(1),
            last: Start::default(),
        }
    }

    /// The next event that is not of a range.
    pub fn feed(&mut self, focus: Focus, record: &Record) {
        self.events += 1;
        let here = Start {
            ns: record.ns,
            ticket: record.ticket,
        };
        self.last = here;
        let change = change(focus, &record.event);
        if change > 0 {
            // It begins with the first allocation after the lowest point.
            self.waves.low(self.now, here);
        }
        self.now = self.now.saturating_add(change);
        if change > 0 {
            self.waves.high(self.now);
        }
        self.highest = self.highest.max(self.now);
        self.deepest = self.deepest.max(self.highest.saturating_sub(self.now));
        if self.events.is_multiple_of(self.each) && self.falls.len() < STRETCHES as usize {
            self.falls.push(self.deepest);
            (self.highest, self.deepest) = (self.now, 0);
        }
    }

    /// The rises and falls; `None` where there is nothing to speak of.
    pub fn cycles(mut self) -> Option<Cycles> {
        self.falls.sort_unstable();
        let usual = *self.falls.get(self.falls.len() * 3 / 4)?;
        let enough = (usual as f64 * PART) as i64;
        if enough == 0 {
            return None;
        }
        let fine = self.waves.higher_than(enough / FINE);
        let waves = fine.clone().higher_than(enough).all;
        let fine = fine.all;
        // The end.
        let end = Start {
            ns: self.last.ns,
            ticket: self.last.ticket.saturating_add(1),
        };
        let repetitions = |waves: Vec<Wave>| {
            let starts = waves.into_iter().map(|wave| wave.start);
            Repetitions {
                by: By::Swing(u64::try_from(usual).unwrap_or(0)),
                starts: starts.chain([end]).collect(),
            }
        };
        let whole = whole(&waves, &fine, (usual as f64 * RETURNS) as i64);
        (waves.len() >= LEAST).then(|| Cycles {
            most: waves.len() as u64,
            whole: (whole.len() >= LEAST).then(|| repetitions(whole)),
        })
    }
}

/// Bytes that an event adds to live memory.
fn change(focus: Focus, event: &Event) -> i64 {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    match Effect::of(event) {
        Effect::Allocated(block) if focus.holds(event) => bytes(block.requested),
        Effect::Freed(block) if focus.holds(event) => -bytes(block.requested),
        _ => 0,
    }
}

/// A rise from a lowest point to a highest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wave {
    low: i64,
    high: i64,
    /// The first allocation after the lowest point, the last one if it was there several times.
    start: Start,
}

/// Where a level was lowest before it rose by some height, each time after it had fallen by as much.
///
/// Waves of a greater height are found among those of a smaller one, so that no height has to be known before
/// the events are gone through.
#[derive(Clone, Debug, Default)]
struct Waves {
    height: i64,
    all: Vec<Wave>,
    is_rising: bool,
    low: i64,
    start: Start,
}

impl Waves {
    fn of_height(height: i64) -> Waves {
        Waves {
            height,
            ..Waves::default()
        }
    }

    /// The level has come down to this, and an event makes it rise.
    fn low(&mut self, level: i64, start: Start) {
        let high = self.all.last().map_or(i64::MIN, |wave| wave.high);
        if self.is_rising {
            if level <= high.saturating_sub(self.height) {
                (self.is_rising, self.low, self.start) = (false, level, start);
            }
        } else if level <= self.low {
            (self.low, self.start) = (level, start);
        }
    }

    /// The level has risen to this.
    fn high(&mut self, level: i64) {
        match self.all.last_mut() {
            Some(wave) if self.is_rising => wave.high = wave.high.max(level),
            _ if level >= self.low.saturating_add(self.height) => {
                self.all.push(Wave {
                    low: self.low,
                    high: level,
                    start: self.start,
                });
                self.is_rising = true;
                if self.all.len() > WAVES {
                    self.forget();
                }
            }
            _ => {}
        }
    }

    /// Forgets the smallest waves, half of them at least.
    fn forget(&mut self) {
        while self.all.len() > WAVES / 2 {
            let height = self.height.saturating_mul(2);
            *self = std::mem::take(self).higher_than(height);
        }
    }

    /// The waves of a height, or of the least one that is still known.
    fn higher_than(self, height: i64) -> Waves {
        let mut higher = Waves::of_height(height.max(self.height));
        for wave in &self.all {
            higher.low(wave.low, wave.start);
            higher.high(wave.high);
        }
        if !self.is_rising {
            higher.low(self.low, self.start);
        }
        higher
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The places where a level was lowest, by the rule itself.
    fn lows(changes: &[i64], enough: i64) -> Vec<u64> {
        let (mut now, mut low, mut high) = (0, 0, 0);
        let (mut is_rising, mut lowest) = (false, 0);
        let mut lows = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            if !is_rising && *change > 0 && now <= low {
                (low, lowest) = (now, at as u64);
            }
            now += change;
            if !is_rising && now >= low + enough {
                lows.push(lowest);
                (is_rising, high) = (true, now);
            } else if is_rising {
                high = high.max(now);
                if now <= high - enough {
                    (is_rising, low) = (false, now);
                }
            }
            if !is_rising {
                low = low.min(now);
            }
        }
        lows
    }

    proptest! {
        #[test]
        fn waves_of_any_height_are_found_among_smaller_ones(
            changes in prop::collection::vec(-50..50_i64, 0..200),
            heights in prop::collection::vec(1..120_i64, 1..4),
        ) {
            let mut waves = Waves::of_height(1);
            let mut now = 0;
            for (at, change) in changes.iter().enumerate() {
                if *change > 0 {
                    waves.low(now, Start { ns: 0, ticket: at as u64 });
                }
                now += change;
                if *change > 0 {
                    waves.high(now);
                }
            }
            let highest = *heights.iter().max().unwrap();
            let waves = heights.into_iter().fold(waves, Waves::higher_than);
            let found: Vec<u64> = waves.all.iter().map(|wave| wave.start.ticket).collect();
            prop_assert_eq!(found, lows(&changes, highest));
        }
    }
}

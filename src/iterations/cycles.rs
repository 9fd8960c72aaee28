//! Iterations by the rise and fall of what is live: it comes back to where it was each time.

use super::{By, Iterations, Start};
use crate::ledger::Focus;
use gpushim_trace::{Effect, Event, Record};

/// The run is looked at in so many stretches of equally many events; what most of them do counts, and
/// neither how it begins nor how it ends.
const STRETCHES: u64 = 8;
/// Fewer are no iterations: any program rises and falls a few times.
const LEAST: usize = 6;
/// A rise or fall counts if it is this part of what is usual: batches may be of a quarter of the largest
/// one's size.
const PART: f64 = 0.2;
/// Waves that are remembered, 32 bytes each; of more the smallest are forgotten.
const WAVES: usize = 1 << 20;

/// How far what is live falls, usually, and where it was lowest.
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
    /// Of a run with so many events.
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
    pub fn cycles(mut self) -> Option<Iterations> {
        self.falls.sort_unstable();
        let usual = *self.falls.get(self.falls.len() * 3 / 4)?;
        let enough = (usual as f64 * PART) as i64;
        if enough == 0 {
            return None;
        }
        let waves = self.waves.higher_than(enough).all;
        let mut starts: Vec<Start> = waves.into_iter().map(|wave| wave.start).collect();
        // The end.
        starts.push(Start {
            ns: self.last.ns,
            ticket: self.last.ticket.saturating_add(1),
        });
        (starts.len() > LEAST).then(|| Iterations {
            by: By::Swing(u64::try_from(usual).unwrap_or(0)),
            starts,
        })
    }
}

/// What an event adds to what is live, bytes.
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
#[derive(Debug, Default)]
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

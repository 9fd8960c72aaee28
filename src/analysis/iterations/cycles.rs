//! Iterations by the rise and fall of what is live: it comes back to where it was each time.

use super::{By, Iterations, Start};
use crate::analysis::walk::Focus;
use crate::recording::Recording;
use crate::trace::{Event, Kind};

/// The run is looked at in so many stretches of equally many events; what most of them do counts, and
/// neither how it begins nor how it ends.
const STRETCHES: u64 = 8;
/// Fewer are no iterations: any program rises and falls a few times.
const LEAST: usize = 6;
/// A rise or fall counts if it is this part of what is usual: batches may be of a quarter of the largest
/// one's size.
const PART: f64 = 0.2;

/// How far what is live falls, usually.
#[derive(Debug)]
pub struct Swing {
    /// Events of a stretch.
    each: u64,
    /// Events so far.
    events: u64,
    now: i128,
    highest: i128,
    deepest: i128,
    /// The deepest fall within each stretch, bytes.
    falls: Vec<i128>,
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
        }
    }

    /// The next event.
    pub fn feed(&mut self, focus: Focus, event: &Event) {
        self.events += 1;
        self.now += change(focus, event);
        self.highest = self.highest.max(self.now);
        self.deepest = self.deepest.max(self.highest - self.now);
        if self.events.is_multiple_of(self.each) && self.falls.len() < STRETCHES as usize {
            self.falls.push(self.deepest);
            (self.highest, self.deepest) = (self.now, 0);
        }
    }

    /// The rises and falls; `None` where there is nothing to speak of.
    pub fn cycles(mut self, recording: &dyn Recording, focus: Focus) -> Option<Iterations> {
        self.falls.sort_unstable();
        let usual = *self.falls.get(self.falls.len() * 3 / 4)?;
        let enough = (usual as f64 * PART) as i128;
        if enough == 0 {
            return None;
        }
        let starts = lows(recording, focus, enough);
        (starts.len() > LEAST).then(|| Iterations {
            by: By::Swing(u64::try_from(usual).unwrap_or(u64::MAX)),
            starts,
        })
    }
}

/// What an event adds to what is live, bytes.
fn change(focus: Focus, event: &Event) -> i128 {
    if event.result != 0 || !focus.holds(event) {
        return 0;
    }
    match event.kind {
        Kind::Alloc | Kind::TensorAlloc => event.size.into(),
        Kind::Free | Kind::TensorFree => -i128::from(event.size),
        _ => 0,
    }
}

/// Where what is live was lowest before it rose by enough, each after it had fallen by enough; and the end.
fn lows(recording: &dyn Recording, focus: Focus, enough: i128) -> Vec<Start> {
    let mut lows = Vec::new();
    let (mut now, mut low, mut high) = (0_i128, 0_i128, 0_i128);
    let mut rising = false;
    let (mut here, mut lowest) = (Start::default(), Start::default());
    for record in recording.events() {
        here = Start {
            ns: record.ns,
            ticket: record.ticket,
        };
        let change = change(focus, &record.event);
        // It begins with the first allocation after the lowest point.
        if !rising && change > 0 && now <= low {
            (low, lowest) = (now, here);
        }
        now += change;
        if !rising && now >= low + enough {
            lows.push(lowest);
            (rising, high) = (true, now);
        } else if rising {
            high = high.max(now);
            if now <= high - enough {
                (rising, low) = (false, now);
            }
        }
        if !rising {
            low = low.min(now);
        }
    }
    lows.push(Start {
        ns: here.ns,
        ticket: here.ticket.saturating_add(1),
    });
    lows
}

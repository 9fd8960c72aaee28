//! A made-up run: its events, and what is found in it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use gpushim_recording::Call;

use crate::repeats::{Course, Growth, Level, Loop, Moment, PathKind, Series, Walk, choose};

/// An allocation, or the end of one.
#[derive(Clone, Copy, Debug)]
struct Event {
    path: usize,
    size: u64,
    /// The number of the allocation that ends.
    ends: Option<usize>,
}

/// The events of a program.
#[derive(Debug)]
pub(super) struct Run {
    events: Vec<Event>,
    paths: Vec<Vec<(u64, u64)>>,
    known: BTreeMap<Vec<(u64, u64)>, usize>,
    random: u64,
}

/// The growth that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) rate: f64,
    /// Number of passes of the loop, or of its passes that add something.
    pub(super) count: u64,
    /// The innermost function and line that keeps most.
    pub(super) line: (u64, u64),
}

impl Run {
    pub(super) fn new(seed: u64) -> Run {
        Run {
            events: Vec::new(),
            paths: Vec::new(),
            known: BTreeMap::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// A number below another one.
    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    /// Functions that call each other, the outermost first, each at a line, make a block.
    pub(super) fn make(&mut self, calls: &[(u64, u64)], size: u64) -> usize {
        let next = self.paths.len();
        let path = *self.known.entry(calls.to_vec()).or_insert(next);
        if path == next {
            self.paths.push(calls.to_vec());
        }
        self.events.push(Event {
            path,
            size,
            ends: None,
        });
        self.events.len() - 1
    }

    pub(super) fn end(&mut self, made: usize) {
        let event = self.events[made];
        self.events.push(Event {
            ends: Some(made),
            ..event
        });
    }

    pub(super) fn end_all(&mut self, made: impl IntoIterator<Item = usize>) {
        made.into_iter().for_each(|one| self.end(one));
    }

    fn at(ticket: usize) -> Moment {
        Moment {
            ticket: ticket as u64,
            ns: ticket as u64,
        }
    }

    /// The loops to which much of the run belongs, the outermost first.
    pub(super) fn loops(&self) -> Vec<Loop> {
        let mut walk = Walk::new();
        let kind = PathKind {
            has_lines: true,
            is_other: false,
        };
        for (number, calls) in self.paths.iter().enumerate() {
            let call = |(function, site): &(u64, u64)| Call {
                function: *function,
                site: *site,
            };
            let calls: Vec<Call> = calls.iter().map(call).collect();
            walk.path(number as u32, &calls, 0, kind);
        }
        for (ticket, event) in self
            .events
            .iter()
            .enumerate()
            .filter(|(_, one)| one.ends.is_none())
        {
            walk.step(0, event.path as u32, Run::at(ticket));
        }
        let mut loops = walk.finish(Run::at(self.events.len()));
        loops.retain(|one| one.covered * 5 >= self.events.len() as u64);
        loops
    }

    /// The growth of the run, if there is any.
    pub(super) fn analyse(&self) -> Option<Found> {
        let loops = self.loops();
        let mut series = Series::new(loops.iter());
        let mut live: BTreeMap<usize, Event> = BTreeMap::new();
        let mut at_last = vec![BTreeMap::new(); loops.len()];
        for (ticket, event) in self.events.iter().enumerate() {
            for (one, at_last) in loops.iter().zip(&mut at_last) {
                if one
                    .starts
                    .last()
                    .is_some_and(|last| last.ticket == ticket as u64)
                {
                    *at_last = live.clone();
                }
            }
            series.at(ticket as u64);
            match event.ends {
                None => {
                    series.allocated(event.path, event.size);
                    live.insert(ticket, *event);
                }
                Some(made) => {
                    series.freed(event.path, event.size);
                    live.remove(&made);
                }
            }
        }
        let levels = loops.iter().enumerate().map(|(number, one)| {
            let sizes = |path: &usize| {
                let mut of = FxHashMap::<u64, (usize, bool)>::default();
                for (made, event) in at_last[number]
                    .iter()
                    .filter(|(_, event)| event.path == *path)
                {
                    let pass = one
                        .starts
                        .partition_point(|start| start.ticket <= *made as u64);
                    let (first, again) = of.entry(event.size).or_insert((pass, false));
                    *again |= *first != pass;
                }
                (
                    of.len() as u64,
                    of.values().filter(|(_, again)| *again).count() as u64,
                )
            };
            let growth = Growth::of(series.levels(number), series.volumes(number), &sizes);
            Level { number, growth }
        });
        let levels = levels.collect();
        let end = self.events.iter().rposition(|event| event.ends.is_none())?;
        let level = choose(&loops, levels, end as u64)?;
        let first = level.growth.grown.first()?;
        let one = &loops[level.number];
        let (count, rate) = match first.course {
            Course::Sparse { every, .. } => {
                ((one.count as f64 / every) as u64, level.growth.rate * every)
            }
            _ => (one.count, level.growth.rate),
        };
        Some(Found {
            rate,
            count,
            line: *self.paths[first.group].last()?,
        })
    }
}

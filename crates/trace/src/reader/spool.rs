//! The spool of a trace: its frames, and their events in the order of time.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;

use super::bytes::Bytes;
use super::lost::{self, Place};
use super::ring::{RingView, Spooled, TimedEvent};
use crate::event::Event;
use crate::spool::{Budget, Span, scan};

mod beside;

/// Largest number of frames that are unpacked at once, each by a thread: 2 MiB of events each.
const AHEAD_MAX: usize = 8;

/// Largest number of frames that are open at once: they overlap only by events published late.
const OPEN_MAX: usize = 64;

/// Opened files of a spool.
#[derive(Debug)]
pub struct Spool {
    files: Vec<(PathBuf, File)>,
    /// Index of the file and frame, by the times of their first events.
    frames: Vec<(usize, Span)>,
    /// Number of events in all frames.
    pub events: u64,
}

impl Spool {
    /// Opens the spool of a trace, if there is one; takes its events out of the ring. The area is
    /// behind the mapped part. Where it is empty, files beside the trace are read, as traces of an
    /// earlier form have them.
    pub fn open(
        (path, file): (&Path, File),
        area: Range<u64>,
        trace: u64,
        ring: &mut RingView,
        bytes: &Bytes,
        problems: &mut Vec<String>,
    ) -> Option<Spool> {
        let files = match area.is_empty() {
            true => beside::files(path, problems),
            false => vec![(path.to_path_buf(), file, area)],
        };
        if files.is_empty() {
            return None;
        }
        let mut spool = Spool {
            files: Vec::new(),
            frames: Vec::new(),
            events: 0,
        };
        let mut spooled = Spooled::new(ring);
        let mut budget = Budget::new();
        for (index, (path, file, area)) in files.into_iter().enumerate() {
            let mut found = Vec::new();
            let mark = |chunk, number, length| spooled.mark(chunk, number, length);
            match scan(&file, area, trace, &mut budget, &mut found, mark) {
                Ok(frames) => {
                    let events = frames.iter().map(|span| u64::from(span.header.events));
                    spool.events += events.sum::<u64>();
                    let frames = frames.into_iter().map(|span| (index, span));
                    spool.frames.extend(frames);
                }
                Err(error) => found.push(format!("it cannot be read: {error}")),
            }
            let name = |problem| format!("the spool in {}: {problem}", path.display());
            problems.extend(found.into_iter().map(name));
            spool.files.push((path, file));
        }
        spooled.take_out(ring, bytes);
        spool
            .frames
            .sort_by_key(|(_, span)| (span.header.first, span.header.number));
        Some(spool)
    }

    /// Returns the events of the frames with any event after these ticks.
    pub fn events(&self, after: Option<u64>) -> SpoolEvents<'_> {
        SpoolEvents {
            spool: self,
            waiting: &self.frames,
            unpacked: VecDeque::new(),
            open: BinaryHeap::new(),
            after,
        }
    }
}

/// Iterator over the events of a spool; only frames with overlapping times are in memory.
#[derive(Clone, Debug)]
pub struct SpoolEvents<'a> {
    spool: &'a Spool,
    waiting: &'a [(usize, Span)],
    /// Events of the first waiting frames that are needed.
    unpacked: VecDeque<Vec<[u64; 7]>>,
    open: BinaryHeap<Open>,
    after: Option<u64>,
}

/// A frame that was begun: its next event, and the later ones from the last to the first.
#[derive(Clone, Debug)]
struct Open {
    next: TimedEvent,
    /// Number of the frame: frames keep their order when times are equal.
    number: u64,
    rest: Vec<[u64; 7]>,
}

impl Open {
    fn new(number: u64, mut events: Vec<[u64; 7]>) -> Option<Open> {
        events.reverse();
        Some(Open {
            next: found(&events.pop()?),
            number,
            rest: events,
        })
    }
}

fn found(words: &[u64; 7]) -> TimedEvent {
    let (ticks, event) = Event::from_words(*words);
    TimedEvent { ticks, event }
}

impl Ord for Open {
    /// Orders the next event as the greatest, as [`BinaryHeap`] requires.
    fn cmp(&self, other: &Open) -> Ordering {
        let rank = |open: &Open| (open.next.rank(), open.number);
        rank(other).cmp(&rank(self))
    }
}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Open) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Open) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Open {}

impl SpoolEvents<'_> {
    fn is_needed(&self, span: &Span) -> bool {
        self.after.is_none_or(|after| span.header.last > after)
    }

    /// Unpacks the next frames, as many at once as there are processors.
    fn unpack(&mut self) {
        let spool = self.spool;
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let needed = self.waiting.iter().filter(|(_, span)| self.is_needed(span));
        let needed: Vec<_> = needed.take(processors.min(AHEAD_MAX)).collect();
        let read = |(file, span): &(usize, Span)| {
            let (path, file) = spool.files.get(*file)?;
            let events = span.read(file);
            if events.is_none() && span.is_lost(file) {
                lost::note(path, Place::Byte(span.offset));
            }
            events
        };
        self.unpacked = thread::scope(|scope| {
            let threads = needed.iter().map(|frame| scope.spawn(|| read(frame)));
            let threads: Vec<_> = threads.collect();
            let events = threads.into_iter().map(|thread| thread.join());
            let events = events.map(|read| read.ok().flatten().unwrap_or_default());
            events.collect()
        });
    }
}

impl Iterator for SpoolEvents<'_> {
    type Item = TimedEvent;

    fn next(&mut self) -> Option<TimedEvent> {
        // Opens the frames that begin before the next event of the open ones, or with it.
        while let Some(((_, span), rest)) = self.waiting.split_first() {
            let next = self.open.peek().map(|open| open.next.ticks);
            if next.is_some_and(|next| next < span.header.first) || self.open.len() >= OPEN_MAX {
                break;
            }
            if self.is_needed(span) {
                if self.unpacked.is_empty() {
                    self.unpack();
                }
                let events = self.unpacked.pop_front().unwrap_or_default();
                self.open.extend(Open::new(span.header.number, events));
            }
            self.waiting = rest;
        }
        let mut top = self.open.peek_mut()?;
        let event = top.next;
        match top.rest.pop() {
            Some(words) => top.next = found(&words),
            None => drop(std::collections::binary_heap::PeekMut::pop(top)),
        }
        Some(event)
    }
}

//! Reserved memory that cannot be used: free, but in pieces, and pinned by the blocks between them.

use serde::Serialize;

use super::layout::{Layout, Room, Segment};
use super::older::Older;
use crate::ledger::{Block, Focus, LiveAt, Moment, Segments, Visitor, by_stack, walk};
use crate::recording::Recording;
use gpushim_trace::{Event, Kind, Layer, Record, flags};

/// Share of a device's reserved memory that must be free and pinned to be a finding.
const STUCK_SHARE: f64 = 0.2;
/// Bytes that must be free and pinned to be a finding. Segments of PyTorch are 20 MiB, and one or
/// two are never full.
const STUCK_LEAST: u64 = 48 << 20;

/// The layout of memory at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fragmentation {
    /// When, ns since the start.
    pub ns: u64,
    /// The place of the first event after it.
    pub ticket: u64,
    /// The request for which memory grew to its peak, if that is the moment.
    pub asked: Option<Asked>,
    /// By device, in the order of their ordinals.
    pub devices: Vec<Room>,
    /// In the order of addresses.
    pub segments: Vec<Segment>,
    /// Segments that are nearly empty, and what is in them; those first that have most free bytes.
    pub pins: Vec<Pin>,
}

/// The request for which memory was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Asked {
    /// Bytes.
    pub size: u64,
    /// Id of the stack.
    pub stack: u32,
}

/// Block that keeps a nearly empty segment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pin {
    /// The segment's address.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// Free bytes of it.
    pub free: u64,
    /// Blocks in it.
    pub blocks: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// When the oldest of them was allocated, ns since the start.
    pub oldest_ns: u64,
    /// Id of the stack that has most of these bytes.
    pub stack: u32,
}

impl Fragmentation {
    /// Examines a moment. [`Moment::Peak`] is the moment at which most memory was reserved; of
    /// several, the one with most of it in use.
    ///
    /// This moment is after the request for which memory was reserved: memory that is free then did
    /// not serve the request. It is never before the recording began.
    pub fn at(recording: &dyn Recording, focus: Focus, moment: Moment) -> Fragmentation {
        let begin = Segments::of(recording, focus);
        let mut find = Find::new(moment, begin);
        walk(recording, focus, &mut [&mut find]);
        if moment == Moment::Peak {
            find.look(None);
        }
        let ticket = find.ticket.unwrap_or(u64::MAX);
        let ns = match moment {
            Moment::Ns(ns) => ns.min(find.last_ns),
            Moment::Peak => find.ns,
            Moment::End => find.last_ns,
        };
        let older = Older::of(recording, focus, ns);
        if find.highest == 0 && older.is_empty() {
            // A recording of requests alone does not name the segments that served them.
            return Fragmentation {
                ns,
                ticket,
                asked: None,
                devices: Vec::new(),
                segments: Vec::new(),
                pins: Vec::new(),
            };
        }
        Fragmentation {
            asked: find.asked,
            ..Fragmentation::before(recording, focus, ticket, ns)
        }
    }

    /// Looks at the moment before an event, `ns` after the start.
    pub fn before(recording: &dyn Recording, focus: Focus, ticket: u64, ns: u64) -> Fragmentation {
        let mut live = LiveAt::new(ticket);
        let mut taken = TakenAt {
            ticket,
            is_over: false,
            segments: Segments::of(recording, focus),
            words: Vec::new(),
        };
        walk(recording, focus, &mut [&mut taken, &mut live]);
        let blocks = live.into_blocks();
        let layout = Layout::of(&taken.segments, &blocks, Older::of(recording, focus, ns));
        Fragmentation {
            ns,
            ticket,
            asked: None,
            devices: layout.rooms(&taken.words),
            pins: pins(recording, &layout),
            segments: layout.into_segments(),
        }
    }

    /// Returns true if enough memory is pinned to report it.
    pub fn is_found(&self) -> bool {
        self.devices.iter().any(Room::is_fragmented)
    }
}

impl Room {
    /// Returns true if much of the reserved memory of this device is free and pinned.
    pub fn is_fragmented(&self) -> bool {
        self.is_much(self.stuck)
    }

    /// Returns true if a part of the reserved memory is large enough to be reported.
    pub fn is_much(&self, bytes: u64) -> bool {
        bytes >= STUCK_LEAST && bytes as f64 >= STUCK_SHARE * self.reserved as f64
    }
}

fn pins(recording: &dyn Recording, layout: &Layout<'_>) -> Vec<Pin> {
    let mut pins: Vec<Pin> = layout
        .nearly_empty()
        .filter_map(|(segment, blocks)| {
            let held = by_stack(recording, blocks.iter().copied());
            Some(Pin {
                address: segment.address,
                size: segment.size,
                free: segment.size.saturating_sub(segment.used),
                blocks: segment.blocks,
                bytes: held
                    .iter()
                    .fold(0, |sum, held| sum.saturating_add(held.bytes)),
                oldest_ns: held.iter().map(|held| held.oldest_ns).min()?,
                stack: held.first()?.stack,
            })
        })
        .collect();
    pins.sort_by_key(|pin| (std::cmp::Reverse(pin.free), pin.address));
    pins
}

/// Finds the moment: its time, and the place of the first event after it.
struct Find {
    moment: Moment,
    segments: Segments,
    /// The most that was held, bytes.
    highest: u64,
    /// Live bytes minus the initial bytes of older blocks of which only the end is known.
    allocated: i128,
    /// True if an event of the recording was seen. The events with which a snapshot describes its
    /// beginning are no moment of the run.
    has_begun: bool,
    /// True if more is reserved than ever, for a request that has not been served yet.
    is_growing: bool,
    /// The request that was just served, if more memory than ever was reserved for it.
    grown_for: Option<Asked>,
    /// Bytes reserved and bytes allocated at the moment.
    best: Option<(u64, i128)>,
    ns: u64,
    ticket: Option<u64>,
    asked: Option<Asked>,
    last_ns: u64,
}

impl Find {
    fn new(moment: Moment, segments: Segments) -> Find {
        Find {
            moment,
            highest: segments.total(),
            segments,
            allocated: 0,
            has_begun: false,
            is_growing: false,
            grown_for: None,
            best: None,
            ns: 0,
            ticket: None,
            asked: None,
            last_ns: 0,
        }
    }

    /// Compares the moment between two events, before the first or after the last. The best has the
    /// most reserved memory, and of several the most of it in use.
    fn look(&mut self, next: Option<u64>) {
        let now = (self.segments.total(), self.allocated);
        if self.best.is_none_or(|best| now > best) {
            self.best = Some(now);
            (self.ns, self.ticket) = (self.last_ns, next);
            self.asked = self.grown_for;
        }
        self.grown_for = None;
    }
}

impl Visitor for Find {
    fn event(&mut self, record: &Record) {
        let is_earlier = record.event.flags & flags::EARLIER != 0;
        if self.last_ns == 0 {
            // Memory that is older than all events was there when the first one occurred.
            self.last_ns = record.ns;
        }
        match self.moment {
            Moment::Peak if !is_earlier => {
                self.look(Some(record.ticket));
                self.has_begun = true;
            }
            Moment::Ns(ns) if !is_earlier && self.ticket.is_none() && record.ns > ns => {
                self.ticket = Some(record.ticket);
            }
            _ => {}
        }
        self.last_ns = record.ns;
        self.segments.feed(record);
        if self.segments.total() > self.highest {
            self.highest = self.segments.total();
            self.is_growing = self.has_begun;
        }
    }

    fn allocated(&mut self, block: &Block) {
        self.allocated += i128::from(block.room);
        if std::mem::take(&mut self.is_growing) {
            self.grown_for = Some(Asked {
                size: block.size,
                stack: block.stack,
            });
        }
    }

    fn freed(&mut self, block: &Block, _: &Record) {
        self.allocated -= i128::from(block.room);
    }
}

/// Reserved memory, and the allocated bytes of a framework, just before an event.
struct TakenAt {
    ticket: u64,
    is_over: bool,
    segments: Segments,
    /// Bytes that the framework reported, by device.
    words: Vec<(u8, u64)>,
}

impl Visitor for TakenAt {
    fn event(&mut self, record: &Record) {
        self.is_over |= record.ticket >= self.ticket;
        if self.is_over {
            return;
        }
        let event: &Event = &record.event;
        self.segments.feed(record);
        if matches!(event.kind, Kind::TensorAlloc | Kind::TensorFree)
            && event.class.layer() == Layer::Tensor
            && event.extra[0] > 0
        {
            self.words.retain(|(device, _)| *device != event.device);
            self.words.push((event.device, event.extra[0]));
        }
    }

    fn allocated(&mut self, block: &Block) {
        if !self.is_over {
            self.segments.uses(block.address);
        }
    }
}

#[cfg(test)]
mod tests;

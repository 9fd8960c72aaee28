//! Memory that is held and of no use: free, but in pieces, and pinned by what lies between them.

use serde::Serialize;

use super::layout::{Layout, Room, Segment};
use crate::ledger::{Block, Focus, LiveAt, Moment, Segments, Visitor, by_stack, walk};
use crate::recording::Recording;
use gpushim_trace::{Event, Kind, Layer, Record};

/// It is a finding if this part of what a device holds is free and stuck,
const STUCK_SHARE: f64 = 0.2;
/// and at least so many bytes: segments of PyTorch and of ours are 20 MiB, and one or two are never full.
const STUCK_LEAST: u64 = 48 << 20;

/// How memory lay at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fragmentation {
    /// When, ns since the start.
    pub ns: u64,
    /// The place of the first event after it.
    pub ticket: u64,
    /// What was asked for when memory grew to its peak, if that is the moment.
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
pub struct Asked {
    /// Bytes.
    pub size: u64,
    /// Id of the stack.
    pub stack: u32,
}

/// What keeps a nearly empty segment.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// Looks at a moment. [`Moment::Peak`] is here the moment at which most was held: after the request that
    /// it was taken for, so that what is free then was of no use to it.
    pub fn at(recording: &dyn Recording, focus: Focus, moment: Moment) -> Fragmentation {
        let begin = Segments::of(recording, focus);
        let mut find = Find {
            moment,
            highest: begin.total(),
            segments: begin.clone(),
            is_growing: false,
            ns: 0,
            ticket: None,
            asked: None,
            last_ns: 0,
        };
        walk(recording, focus, &mut [&mut find]);
        let ticket = find.ticket.unwrap_or(u64::MAX);
        let ns = match moment {
            Moment::Ns(ns) => ns.min(find.last_ns),
            Moment::Peak => find.ns,
            Moment::End => find.last_ns,
        };
        if find.highest == 0 {
            // Of a recording of requests alone it cannot be said what they were cut from.
            return Fragmentation {
                ns,
                ticket,
                asked: None,
                devices: Vec::new(),
                segments: Vec::new(),
                pins: Vec::new(),
            };
        }
        let mut live = LiveAt::new(ticket);
        let mut taken = TakenAt {
            ticket,
            is_over: false,
            segments: begin,
            words: Vec::new(),
        };
        walk(recording, focus, &mut [&mut taken, &mut live]);
        let blocks = live.into_blocks();
        let layout = Layout::of(&taken.segments, &blocks);
        Fragmentation {
            ns,
            ticket,
            asked: find.asked,
            devices: layout.rooms(&taken.words),
            pins: pins(recording, &layout),
            segments: layout.into_segments(),
        }
    }

    /// Whether that much is held in vain that it is worth a word.
    pub fn is_found(&self) -> bool {
        self.devices.iter().any(Room::is_fragmented)
    }
}

impl Room {
    /// Whether much of what this device holds is free and stuck.
    pub fn is_fragmented(&self) -> bool {
        self.stuck >= STUCK_LEAST && self.stuck as f64 >= STUCK_SHARE * self.reserved as f64
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
    highest: u64,
    /// More is held than ever; the request that it is for has not been met yet.
    is_growing: bool,
    ns: u64,
    ticket: Option<u64>,
    asked: Option<Asked>,
    last_ns: u64,
}

impl Find {
    /// What happens later than this does not belong to the moment. What happens at the same time does: a
    /// snapshot tells at one time all that was there before its first entry.
    fn is_at(&mut self, ns: u64) {
        (self.ns, self.ticket) = (ns, None);
    }
}

impl Visitor for Find {
    fn event(&mut self, record: &Record) {
        self.last_ns = record.ns;
        let limit = match self.moment {
            Moment::Peak => Some(self.ns),
            Moment::Ns(ns) => Some(ns),
            Moment::End => None,
        };
        if self.ticket.is_none() && limit.is_some_and(|limit| record.ns > limit) {
            self.ticket = Some(record.ticket);
        }
        self.segments.feed(record);
        if self.segments.total() > self.highest {
            self.highest = self.segments.total();
            if self.moment == Moment::Peak {
                self.is_growing = true;
                self.asked = None;
                self.is_at(record.ns);
            }
        }
    }

    fn allocated(&mut self, block: &Block) {
        if std::mem::take(&mut self.is_growing) {
            self.asked = Some(Asked {
                size: block.size,
                stack: block.stack,
            });
            self.is_at(block.ns);
        }
    }
}

/// What is held, and what a framework says that it has handed out, just before an event.
struct TakenAt {
    ticket: u64,
    is_over: bool,
    segments: Segments,
    /// Bytes by device.
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

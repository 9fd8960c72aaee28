//! Perfetto's trace: for each process the levels of each device as counters, ranges as slices, and
//! moments (out-of-memory, marks, trims) as instants. Format: `perfetto/trace/trace_packet.proto`
//! and `track_event.proto` of Perfetto.

use std::collections::BTreeMap;
use std::io::Write;

use rustc_hash::FxHashMap;

use super::complete_events::CompleteEvents;
use super::counters::{Counters, NAMES};
use super::process::{Process, processes};
use super::proto::Message;
use crate::error::Result;
use crate::recording::Recording;
use gpushim_trace::{Event, Kind, Record};

/// Fields of `perfetto.protos.TracePacket`, and of the messages in it.
mod field {
    pub const PACKET: u32 = 1;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK_DESCRIPTOR: u32 = 60;

    pub const TRACK_UUID: u32 = 1;
    pub const TRACK_NAME: u32 = 2;
    pub const TRACK_PROCESS: u32 = 3;
    pub const TRACK_THREAD: u32 = 4;
    pub const TRACK_PARENT: u32 = 5;
    pub const TRACK_COUNTER: u32 = 8;

    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const UUID: u32 = 11;
    pub const CATEGORY: u32 = 22;
    pub const NAME: u32 = 23;
    pub const COUNTER_VALUE: u32 = 30;
}

/// Values of `TrackEvent.Type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
/// `CounterDescriptor.Unit.UNIT_SIZE_BYTES`.
const UNIT_BYTES: u64 = 3;
/// `TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED`.
const STATE_CLEARED: u64 = 1;

/// Writes all recordings on one time axis, which begins where the first of them does.
pub(super) fn write(recordings: &[Box<dyn Recording>], out: &mut dyn Write) -> Result<()> {
    let (processes, begin) = processes(recordings);
    let mut used = BTreeMap::new();
    for (place, (recording, process)) in recordings.iter().zip(&processes).enumerate() {
        // Recordings of one process, or of two machines with equal process ids, are distinguished.
        let mut pid = process.pid & i32::MAX as u32;
        while used.insert(pid, ()).is_some() {
            pid = (pid + 1) & i32::MAX as u32;
        }
        let mut tracks = Tracks {
            out: &mut *out,
            base: (place as u64 + 1) << 32,
            pid,
            next: 0,
            offset: process.wall_ns.saturating_sub(begin),
            counters: FxHashMap::default(),
            threads: FxHashMap::default(),
            lanes: Vec::new(),
            open: FxHashMap::default(),
        };
        tracks.process(process)?;
        let story = CompleteEvents::of(&**recording);
        let mut levels = Counters::before(&story);
        for record in story.events() {
            tracks.event(&**recording, &record)?;
            let mut changed = Vec::new();
            levels.feed(&record, |device, place, value| {
                changed.push((device, place, value));
            });
            for (device, place, value) in changed {
                tracks.counter(record.ns, device, place, value)?;
            }
        }
    }
    Ok(())
}

/// The tracks of one process.
struct Tracks<'a> {
    out: &'a mut dyn Write,
    /// Base of the numbers of the process's tracks.
    base: u64,
    pid: u32,
    next: u64,
    /// Ns from the start of the axis to that of the recording.
    offset: u64,
    counters: FxHashMap<(u8, usize), u64>,
    /// Track and open ranges of each thread.
    threads: FxHashMap<u32, (u64, u32)>,
    /// Tracks for ranges that end on other threads: those in use have one.
    lanes: Vec<(u64, bool)>,
    /// Lanes of open ranges, by their numbers.
    open: FxHashMap<u64, usize>,
}

impl Tracks<'_> {
    fn packet(&mut self, ns: Option<u64>, field: u32, message: &Message) -> Result<()> {
        let mut packet = Message::new();
        if let Some(ns) = ns {
            packet = packet.number(field::TIMESTAMP, self.offset.saturating_add(ns));
        }
        packet = packet.number(field::SEQUENCE, self.base >> 32);
        if ns.is_none() && self.next == 1 {
            packet = packet.number(field::SEQUENCE_FLAGS, STATE_CLEARED);
        }
        packet = packet.message(field, message);
        let whole = Message::new().message(field::PACKET, &packet);
        self.out.write_all(whole.as_bytes())?;
        Ok(())
    }

    /// Describes a track; its number.
    fn track(&mut self, describe: impl FnOnce(Message) -> Message) -> Result<u64> {
        let uuid = self.base + self.next;
        self.next += 1;
        let message = describe(Message::new().number(field::TRACK_UUID, uuid));
        self.packet(None, field::TRACK_DESCRIPTOR, &message)?;
        Ok(uuid)
    }

    /// A track below that of the process.
    fn child(&mut self, name: &str, describe: impl FnOnce(Message) -> Message) -> Result<u64> {
        let parent = self.base;
        self.track(|track| {
            let named = track.text(field::TRACK_NAME, name);
            describe(named.number(field::TRACK_PARENT, parent))
        })
    }

    fn process(&mut self, process: &Process) -> Result<()> {
        let described = Message::new()
            .number(1, self.pid.into())
            .text(2, &process.title)
            .text(6, &process.label());
        self.track(|track| track.message(field::TRACK_PROCESS, &described))?;
        Ok(())
    }

    fn counter(&mut self, ns: u64, device: u8, place: usize, value: u64) -> Result<()> {
        let track = match self.counters.get(&(device, place)) {
            Some(track) => *track,
            None => {
                let name = NAMES.get(place).copied().unwrap_or_default();
                let name = match device {
                    Event::NO_DEVICE => name.to_string(),
                    device => format!("gpu {device} {name}"),
                };
                let unit = Message::new().number(3, UNIT_BYTES);
                let track = self.child(&name, |t| t.message(field::TRACK_COUNTER, &unit))?;
                self.counters.insert((device, place), track);
                track
            }
        };
        let message = Message::new()
            .number(field::TYPE, COUNTER)
            .number(field::UUID, track)
            .number(field::COUNTER_VALUE, value);
        self.packet(Some(ns), field::TRACK_EVENT, &message)
    }

    fn thread(&mut self, thread: u32) -> Result<u64> {
        if let Some((track, _)) = self.threads.get(&thread) {
            return Ok(*track);
        }
        let described = Message::new()
            .number(1, self.pid.into())
            .number(2, u64::from(thread) & i32::MAX as u64);
        let track = match thread {
            // Recordings that know no threads; Perfetto has one of its own by that number.
            0 => self.child("moments", |track| track)?,
            _ => self.track(|t| t.message(field::TRACK_THREAD, &described))?,
        };
        self.threads.insert(thread, (track, 0));
        Ok(track)
    }

    fn event(&mut self, recording: &dyn Recording, record: &Record) -> Result<()> {
        let event = &record.event;
        let ns = record.ns;
        let name = || recording.text(event.address).unwrap_or_default();
        match event.kind {
            Kind::RangePush => {
                let track = self.thread(event.thread)?;
                if let Some((_, open)) = self.threads.get_mut(&event.thread) {
                    *open = open.saturating_add(1);
                }
                self.slice(ns, track, Some(&name()))
            }
            Kind::RangePop => match self.threads.get_mut(&event.thread) {
                // One that began before the recording has nothing to end.
                Some((track, open)) if *open > 0 => {
                    *open -= 1;
                    let track = *track;
                    self.slice(ns, track, None)
                }
                _ => Ok(()),
            },
            Kind::RangeStart => {
                let lane = match self.lanes.iter().position(|(_, is_used)| !is_used) {
                    Some(lane) => lane,
                    None => {
                        let track = self.child("ranges", |track| track)?;
                        self.lanes.push((track, false));
                        self.lanes.len() - 1
                    }
                };
                let Some((track, is_used)) = self.lanes.get_mut(lane) else {
                    return Ok(());
                };
                *is_used = true;
                let track = *track;
                self.open.insert(event.size, lane);
                self.slice(ns, track, Some(&name()))
            }
            Kind::RangeEnd => {
                let lane = self.open.remove(&event.size);
                let Some((track, is_used)) = lane.and_then(|lane| self.lanes.get_mut(lane)) else {
                    return Ok(());
                };
                *is_used = false;
                let track = *track;
                self.slice(ns, track, None)
            }
            Kind::Mark => self.instant(record, &name()),
            Kind::OutOfMemory | Kind::TensorOutOfMemory | Kind::Trim | Kind::ContextGone => {
                self.instant(record, event.kind.name())
            }
            _ => Ok(()),
        }
    }

    /// Begins a slice that has a name, or ends the innermost.
    fn slice(&mut self, ns: u64, track: u64, name: Option<&str>) -> Result<()> {
        let kind = if name.is_some() {
            SLICE_BEGIN
        } else {
            SLICE_END
        };
        let mut message = Message::new()
            .number(field::TYPE, kind)
            .number(field::UUID, track);
        if let Some(name) = name {
            message = message
                .text(field::CATEGORY, "range")
                .text(field::NAME, name);
        }
        self.packet(Some(ns), field::TRACK_EVENT, &message)
    }

    fn instant(&mut self, record: &Record, name: &str) -> Result<()> {
        let track = self.thread(record.event.thread)?;
        let size = Message::new()
            .text(10, "bytes")
            .number(3, record.event.size);
        let message = Message::new()
            .number(field::TYPE, INSTANT)
            .number(field::UUID, track)
            .text(field::CATEGORY, "memory")
            .text(field::NAME, name)
            .message(field::ANNOTATION, &size);
        self.packet(Some(record.ns), field::TRACK_EVENT, &message)
    }
}

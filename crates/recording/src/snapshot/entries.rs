//! The data of each device in a snapshot: the recorded history, and the state at its end.

use rustc_hash::FxHashSet;

use crate::caching::{Segment, Settings};
use crate::pickle::{Pickle, Value};
use crate::snapshot::settings;
use crate::snapshot::stacks::Stacks;
use crate::snapshot::texts::Texts;

/// Actions by PyTorch's names (`TraceEntry::Action` of its caching allocator).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A tensor was made. Its size is the requested one, as in both kinds of free.
    Alloc,
    /// The program freed a tensor.
    FreeRequested,
    /// All streams have completed their use of it.
    FreeCompleted,
    /// Memory was taken from the driver, or mapped into an expandable segment.
    SegmentAlloc,
    /// Memory was released to the driver, or unmapped.
    SegmentFree,
    /// A snapshot of memory was taken.
    Snapshot,
    /// A request failed for lack of memory.
    OutOfMemory,
}

/// An entry of a device's history.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceEntry {
    pub action: Action,
    pub address: u64,
    /// Number of bytes of the entry.
    pub size: u64,
    pub stream: u64,
    /// Time by the wall clock, µs.
    pub time_us: Option<u64>,
    pub stack: u32,
    /// True if it is a part of an expandable segment that is mapped or unmapped.
    pub is_mapping: bool,
    /// Free bytes of the device, of a request that failed.
    pub device_free: Option<u64>,
}

/// A block that is allocated at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub address: u64,
    /// Number of bytes of the block.
    pub size: u64,
    /// Number of bytes requested.
    pub requested: u64,
    pub stream: u64,
    pub stack: u32,
}

/// History and state of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceHistory {
    pub ordinal: u8,
    pub entries: Vec<TraceEntry>,
    /// Blocks that are allocated at the end.
    pub blocks: Vec<Block>,
    /// Blocks that the program has freed and streams still use at the end.
    pub waiting: Vec<Block>,
    /// Memory that is reserved at the end: address, bytes, and use.
    pub segments: Vec<(u64, u64, Segment)>,
}

/// Part of the program that PyTorch announced (an optimizer's step, say), or the end of one.
#[derive(Clone, Debug)]
pub(super) struct Annotation {
    /// The number of its name among those of [`Content::names`].
    pub name: u32,
    pub begins: bool,
    pub device: u8,
    pub time_us: u64,
}

/// All data of one snapshot.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub devices: Vec<DeviceHistory>,
    pub annotations: Vec<Annotation>,
    /// The names of annotations.
    pub names: Texts,
    pub settings: Settings,
    /// All settings of the allocator for people, by name.
    pub shown_settings: Vec<(String, String)>,
    pub stacks: Stacks,
    /// Number of malformed entries and blocks.
    pub bad: u64,
    /// Names of unknown actions, a few.
    pub unknown: Vec<String>,
}

/// Names of the actions; the flag is true for a part of an expandable segment.
const ACTIONS: [(&str, Action, bool); 10] = [
    ("alloc", Action::Alloc, false),
    ("free_requested", Action::FreeRequested, false),
    ("free", Action::FreeRequested, false),
    ("free_completed", Action::FreeCompleted, false),
    ("segment_alloc", Action::SegmentAlloc, false),
    ("segment_map", Action::SegmentAlloc, true),
    ("segment_free", Action::SegmentFree, false),
    ("segment_unmap", Action::SegmentFree, true),
    ("snapshot", Action::Snapshot, false),
    ("oom", Action::OutOfMemory, false),
];
/// Letters of an unknown action that are shown.
const LETTERS: usize = 64;
/// Number of unknown actions that are named.
const NAMED: usize = 5;
/// State of a block that the program has.
const ALLOCATED: &str = "active_allocated";
/// States of blocks that the program has freed and streams still use.
const WAITING: [&str; 2] = ["active_pending_free", "active_awaiting_free"];
/// Highest number of devices.
const DEVICES: usize = 255;

impl Content {
    /// Reads a pickle; `None` if it is no snapshot. Every list and every entry is read once, even
    /// if many values refer to it.
    pub(super) fn of(pickle: &Pickle<'_>) -> Option<Content> {
        let mut content = Content::default();
        let root = pickle.root;
        let (traces, segments) = match root {
            // `_record_memory_history` of PyTorch 1.13 left the segments alone.
            Value::List(_) => (None, Some(root)),
            _ => (
                pickle.get(root, "device_traces"),
                pickle.get(root, "segments"),
            ),
        };
        let is_segment = |one: &Value| pickle.get(*one, "total_size").is_some();
        if let Value::List(_) = root
            && !pickle.items(root).iter().any(is_segment)
        {
            return None;
        }
        if traces.is_none() && segments.is_none() {
            return None;
        }
        let mut seen = FxHashSet::default();
        let traces = traces.map_or(&[][..], |traces| pickle.items(traces));
        for (ordinal, trace) in traces.iter().enumerate().take(DEVICES) {
            if let Value::List(place) | Value::Tuple(place) = trace
                && seen.insert(*place)
            {
                let device = content.device(u8::try_from(ordinal).unwrap_or(u8::MAX));
                let entries = content.entries(pickle, *trace, &mut seen);
                if let Some(device) = content.devices.get_mut(device) {
                    device.entries = entries;
                }
            }
        }
        for segment in segments.map_or(&[][..], |segments| pickle.items(segments)) {
            content.segment(pickle, *segment, &mut seen);
        }
        if let Some(annotations) = pickle.get(root, "external_annotations") {
            for annotation in pickle.items(annotations) {
                if !is_new(*annotation, &mut seen) {
                    content.bad += 1;
                    continue;
                }
                let annotation = content.annotation(pickle, *annotation);
                content.annotations.extend(annotation);
            }
        }
        if let Some(settings) = pickle.get(root, "allocator_settings") {
            (content.settings, content.shown_settings) = settings::settings(pickle, settings);
        }
        content.stacks.finish();
        content.names.finish();
        Some(content)
    }

    /// Returns the index of a device in `devices`.
    fn device(&mut self, ordinal: u8) -> usize {
        let known = self.devices.iter().position(|one| one.ordinal == ordinal);
        known.unwrap_or_else(|| {
            self.devices.push(DeviceHistory {
                ordinal,
                ..DeviceHistory::default()
            });
            self.devices.len() - 1
        })
    }

    fn entries(
        &mut self,
        pickle: &Pickle<'_>,
        trace: Value,
        seen: &mut FxHashSet<u32>,
    ) -> Vec<TraceEntry> {
        let mut entries = Vec::with_capacity(pickle.items(trace).len());
        for entry in pickle.items(trace) {
            let name = pickle.get(*entry, "action");
            let name = name.filter(|name| matches!(name, Value::Text { .. }));
            let Some(name) = name.filter(|_| is_new(*entry, seen)) else {
                self.bad += 1;
                continue;
            };
            let mut actions = ACTIONS.iter().copied();
            let known = actions.find(|(action, ..)| pickle.is_text(name, action));
            let Some((_, action, is_mapping)) = known else {
                self.unknown(pickle, name);
                continue;
            };
            let number = |key| pickle.get(*entry, key).and_then(|n| pickle.number(n));
            let address = number("addr");
            // An out-of-memory entry has no address, but has the free bytes of the device.
            if address.is_none() && !matches!(action, Action::OutOfMemory | Action::Snapshot) {
                self.bad += 1;
                continue;
            }
            entries.push(TraceEntry {
                action,
                address: address.unwrap_or(0),
                size: number("size").unwrap_or(0),
                stream: number("stream").unwrap_or(0),
                time_us: number("time_us"),
                stack: self.stacks.of(pickle, *entry),
                is_mapping,
                device_free: number("device_free").filter(|_| action == Action::OutOfMemory),
            });
        }
        entries
    }

    /// Keeps the name of an unknown action.
    fn unknown(&mut self, pickle: &Pickle<'_>, name: Value) {
        if self.unknown.len() < NAMED
            && let Some(name) = pickle.text(name)
            && let name = name.chars().take(LETTERS).collect::<String>()
            && !self.unknown.contains(&name)
        {
            self.unknown.push(name);
        }
    }

    fn segment(&mut self, pickle: &Pickle<'_>, segment: Value, seen: &mut FxHashSet<u32>) {
        let number = |of: Value, key| pickle.get(of, key).and_then(|n| pickle.number(n));
        if !is_new(segment, seen) {
            self.bad += 1;
            return;
        }
        let ordinal = number(segment, "device").unwrap_or(0);
        let known = (number(segment, "address"), number(segment, "total_size"));
        let ((Some(address), Some(size)), Ok(ordinal)) = (known, u8::try_from(ordinal)) else {
            self.bad += 1;
            return;
        };
        let stream = number(segment, "stream").unwrap_or(0);
        let pool = pickle.get(segment, "segment_pool_id");
        let pool = pool.map_or(&[][..], |pool| pickle.items(pool));
        let part = |at: usize| pool.get(at).and_then(|id| pickle.number(*id)).unwrap_or(0);
        let text = pickle.get(segment, "segment_type");
        let kind = Segment {
            stream,
            pool: (part(0), part(1)),
            is_small: text
                .filter(|text| matches!(text, Value::Text { .. }))
                .map(|text| pickle.is_text(text, "small")),
            is_expandable: matches!(
                pickle.get(segment, "is_expandable"),
                Some(Value::Bool(true))
            ),
        };
        let device = self.device(ordinal);
        let (mut allocated, mut waiting) = (Vec::new(), Vec::new());
        // Until PyTorch 2.1 a block did not have its address: it follows the block before it.
        let mut next = address;
        let blocks = pickle.get(segment, "blocks");
        let blocks = blocks.filter(|blocks| match blocks {
            Value::List(place) | Value::Tuple(place) => seen.insert(*place),
            _ => false,
        });
        for block in blocks.map_or(&[][..], |blocks| pickle.items(blocks)) {
            let size = number(*block, "size").filter(|_| is_new(*block, seen));
            let Some(size) = size else {
                self.bad += 1;
                continue;
            };
            let at = number(*block, "address").unwrap_or(next);
            next = at.saturating_add(size);
            let state = pickle.get(*block, "state");
            let is = |text: &str| state.is_some_and(|state| pickle.is_text(state, text));
            let blocks = if is(ALLOCATED) {
                &mut allocated
            } else if WAITING.into_iter().any(is) {
                &mut waiting
            } else {
                continue;
            };
            blocks.push(Block {
                address: at,
                size,
                requested: number(*block, "requested_size").unwrap_or(size),
                stream,
                stack: self.stacks.of(pickle, *block),
            });
        }
        if let Some(device) = self.devices.get_mut(device) {
            device.segments.push((address, size, kind));
            device.blocks.append(&mut allocated);
            device.waiting.append(&mut waiting);
        }
    }

    fn annotation(&mut self, pickle: &Pickle<'_>, annotation: Value) -> Option<Annotation> {
        let begins = pickle.is_text(pickle.get(annotation, "stage")?, "START");
        let device = pickle.number(pickle.get(annotation, "device")?)?;
        Some(Annotation {
            name: (self.names).number(pickle, pickle.get(annotation, "name")?, "")?,
            begins,
            device: u8::try_from(device).ok()?,
            time_us: pickle.number(pickle.get(annotation, "time_us")?)?,
        })
    }
}

/// Returns true if a dict has not been read before. Any other value is new: it has no content to
/// read.
fn is_new(dict: Value, seen: &mut FxHashSet<u32>) -> bool {
    match dict {
        Value::Dict(place) => seen.insert(place),
        _ => true,
    }
}

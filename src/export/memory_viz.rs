//! PyTorch's memory snapshot, as `torch.cuda.memory._dump_snapshot()` writes it.
//!
//! It is for `_memory_viz.py` and the viewer. Each device of each recording is a device of the
//! snapshot, in order. Format: see `recording/snapshot`.
//!
//! Blocks belong to the layer that memory is held in. Segments are the memory below it: the
//! driver's memory below tensors, the pool's segments below the device's. A block outside of all
//! known segments is shown in a segment of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use rustc_hash::FxHashMap;

use super::complete_events::{Change, CompleteEvents};
use super::frames::{Function, functions};
use super::pickler::Pickler;
use super::pickler::Value::{Fields, Number, Numbers, Text};
use super::process::processes;
use crate::error::Result;
use crate::ledger::Block;
use crate::recording::{Names, Recording};
use gpushim_trace::{Kind, Record};

mod end;

/// Writes all recordings as one pickle.
pub(super) fn write(recordings: &[Box<dyn Recording>], out: &mut dyn Write) -> Result<()> {
    let (processes, _) = processes(recordings);
    let mut viz = Viz {
        pickle: Pickler::new(out)?,
        frames: FxHashMap::default(),
        stacks: FxHashMap::default(),
    };
    let mut ends: Vec<End> = Vec::new();
    viz.pickle.begin_dict()?;
    viz.pickle.text("device_traces")?;
    viz.pickle.begin_list()?;
    for (recording, process) in recordings.iter().zip(&processes) {
        let story = CompleteEvents::of(&**recording);
        let mut names = recording.names();
        viz.stacks.clear();
        let mut devices = BTreeSet::new();
        let mut holders = story.holders();
        for record in story.events() {
            holders.feed(&story, &record, |change| {
                if matches!(change, Change::Made(..) | Change::Taken(..)) {
                    devices.insert(change.device());
                }
            });
        }
        for device in devices {
            let mut end = End {
                device: ends.len() as u64,
                ..End::default()
            };
            let wall_us = process.wall_ns / 1000;
            viz.trace(&story, device, wall_us, &mut *names, &mut end)?;
            // Every block's stack came with its allocation.
            let places = end.blocks.iter().filter_map(|(block, _)| {
                let place = viz.stacks.get(&block.stack)?;
                Some((block.stack, *place))
            });
            end.stacks = places.collect();
            ends.push(end);
        }
    }
    viz.pickle.end_list()?;
    viz.pickle.text("segments")?;
    viz.pickle.begin_list()?;
    for end in &ends {
        viz.segments(end)?;
    }
    viz.pickle.end_list()?;
    viz.pickle.fields(&[
        (
            "allocator_settings",
            Fields(&[("PYTORCH_CUDA_ALLOC_CONF", Text(""))]),
        ),
        ("external_annotations", Numbers(&[])),
    ])?;
    viz.pickle.end_dict()?;
    viz.pickle.finish()?;
    Ok(())
}

/// The segments of a device at the end.
#[derive(Default)]
struct End {
    device: u64,
    /// Bytes and stream, by address.
    segments: BTreeMap<u64, (u64, u64)>,
    /// Blocks with their streams.
    blocks: Vec<(Block, u64)>,
    /// Place in the pickle's memo of the stack of each block, by its id.
    stacks: FxHashMap<u32, u32>,
}

struct Viz<'a> {
    pickle: Pickler<'a>,
    /// Places in the pickle's memo of functions, and of the stacks of this recording.
    frames: FxHashMap<Function, u32>,
    stacks: FxHashMap<u32, u32>,
}

/// An entry of a device's history.
struct HistoryEntry {
    action: &'static str,
    address: u64,
    size: u64,
    stream: u64,
    time: u64,
    stack: u32,
}

impl Viz<'_> {
    /// The history of a device.
    fn trace(
        &mut self,
        story: &CompleteEvents<'_>,
        device: u8,
        wall_us: u64,
        names: &mut dyn Names,
        end: &mut End,
    ) -> Result<()> {
        self.pickle.begin_list()?;
        let mut holders = story.holders();
        for record in story.events() {
            let mut changes = Vec::new();
            holders.feed(story, &record, |change| {
                if change.device() == device {
                    changes.push(change);
                }
            });
            let event = &record.event;
            let time = wall_us.saturating_add(record.ns / 1000);
            for change in changes {
                self.change(change, &record, time, names, end)?;
            }
            let is_oom = matches!(event.kind, Kind::OutOfMemory | Kind::TensorOutOfMemory);
            if is_oom && story.device(event) == device {
                // Free memory of the device; a framework does not report it.
                let is_driver = event.kind == Kind::OutOfMemory;
                let entry = HistoryEntry {
                    action: "oom",
                    address: if is_driver { event.extra[0] } else { 0 },
                    size: event.size,
                    stream: 0,
                    time,
                    stack: event.stack,
                };
                self.entry(&entry, names)?;
            }
        }
        self.pickle.end_list()?;
        end.blocks = holders.blocks();
        end.blocks.retain(|(block, _)| block.device == device);
        Ok(())
    }

    /// Records the effect of an event in the history, and in the memory that the device holds.
    fn change(
        &mut self,
        change: Change,
        record: &Record,
        time: u64,
        names: &mut dyn Names,
        end: &mut End,
    ) -> Result<()> {
        let (address, size, stream, actions) = match change {
            Change::Made(block, stream) => (block.address, block.size, stream, &["alloc"][..]),
            Change::Dropped(block, stream) => {
                let actions = &["free_requested", "free_completed"][..];
                (block.address, block.size, stream, actions)
            }
            Change::Taken(one, stream) => {
                end.segments.insert(one.address, (one.size, stream));
                (one.address, one.size, 0, &["segment_alloc"][..])
            }
            Change::Given(one) => {
                end.segments.remove(&one.address);
                (one.address, one.size, 0, &["segment_free"][..])
            }
        };
        for action in actions {
            let entry = HistoryEntry {
                action,
                address,
                size,
                stream,
                time,
                stack: record.event.stack,
            };
            self.entry(&entry, names)?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &HistoryEntry, names: &mut dyn Names) -> Result<()> {
        let is_oom = entry.action == "oom";
        self.pickle.begin_dict()?;
        let address = if is_oom { "device_free" } else { "addr" };
        self.pickle.fields(&[
            ("action", Text(entry.action)),
            (address, Number(entry.address)),
            ("size", Number(entry.size)),
            ("stream", Number(entry.stream)),
            ("time_us", Number(entry.time)),
        ])?;
        self.pickle.text("frames")?;
        self.stack(entry.stack, names)?;
        self.pickle.end_dict()?;
        Ok(())
    }

    /// A stack, by reference where it came before; where it is remembered.
    fn stack(&mut self, stack: u32, names: &mut dyn Names) -> Result<u32> {
        if let Some(place) = self.stacks.get(&stack) {
            self.pickle.again(*place)?;
            return Ok(*place);
        }
        self.pickle.begin_list()?;
        for function in functions(&names.stack(stack)) {
            self.function(function)?;
        }
        self.pickle.end_list()?;
        let place = self.pickle.remember()?;
        self.stacks.insert(stack, place);
        Ok(place)
    }

    fn function(&mut self, function: Function) -> Result<()> {
        if let Some(place) = self.frames.get(&function) {
            self.pickle.again(*place)?;
            return Ok(());
        }
        let file = match function.file.as_str() {
            "" => "??",
            file => file,
        };
        self.pickle.begin_dict()?;
        self.pickle.fields(&[
            ("name", Text(&function.name)),
            ("filename", Text(file)),
            ("line", Number(function.line.into())),
        ])?;
        self.pickle.end_dict()?;
        let place = self.pickle.remember()?;
        self.frames.insert(function, place);
        Ok(())
    }
}

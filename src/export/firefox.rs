//! The Firefox Profiler's processed profile.
//!
//! For each process it has a counter of held memory, and each allocation and free with its stack.
//! The profiler sums up the stacks by function.

use std::io::Write;
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryHandle, Frame, FrameFlags, FrameInfo, Profile, ReferenceTimestamp, SamplingInterval,
    StackHandle, ThreadHandle, Timestamp,
};
use rustc_hash::FxHashMap;

use super::complete_events::{Change, CompleteEvents};
use super::frames::functions;
use super::process::processes;
use crate::error::Result;
use crate::recording::{Names, Recording};
use gpushim_trace::Layer;

/// Writes all recordings on one time axis.
pub(super) fn write(recordings: &[Box<dyn Recording>], out: &mut dyn Write) -> Result<()> {
    let (processes, begin) = processes(recordings);
    let title = processes.first().map(|p| p.label()).unwrap_or_default();
    let start = ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(begin));
    let mut profile = Profile::new(&title, start, SamplingInterval::from_millis(1));
    for (recording, process) in recordings.iter().zip(&processes) {
        let offset = process.wall_ns.saturating_sub(begin);
        let at = |ns: u64| Timestamp::from_nanos_since_reference(offset.saturating_add(ns));
        let handle = profile.add_process(&process.label(), process.pid, at(0));
        let thread = profile.add_thread(handle, process.pid, at(0), true);
        profile.set_thread_name(thread, "GPU memory");
        let story = CompleteEvents::of(&**recording);
        let held = match story.layer {
            Layer::Tensor => "Bytes of tensors",
            _ => "Requested bytes of device memory",
        };
        let counter = profile.add_counter(handle, "GPU memory", "Memory", held);
        let mut stacks = Stacks {
            names: recording.names(),
            known: FxHashMap::default(),
        };
        let mut holders = story.holders();
        let mut last = 0;
        for record in story.events() {
            last = record.ns;
            holders.feed(&story, &record, |change| {
                let (block, sign, stack) = match change {
                    Change::Made(block, _) => (block, 1, block.stack),
                    // The profiler finds the allocation by the address.
                    Change::Dropped(block, _) => (block, -1, record.event.stack),
                    Change::Taken(..) | Change::Given(_) => return,
                };
                let bytes = sign * i64::try_from(block.size).unwrap_or(i64::MAX);
                let stack = stacks.get(&mut profile, thread, stack);
                profile.add_allocation_sample(thread, at(last), stack, block.address, bytes);
                profile.add_counter_sample(counter, at(last), bytes as f64, 1);
            });
        }
        profile.set_thread_end_time(thread, at(last));
        profile.set_process_end_time(handle, at(last));
    }
    serde_json::to_writer(&mut *out, &profile)?;
    writeln!(out)?;
    Ok(())
}

/// Stacks as the profile has them, each made once.
struct Stacks<'a> {
    names: Box<dyn Names + 'a>,
    known: FxHashMap<u32, Option<StackHandle>>,
}

impl Stacks<'_> {
    fn get(
        &mut self,
        profile: &mut Profile,
        thread: ThreadHandle,
        stack: u32,
    ) -> Option<StackHandle> {
        if let Some(known) = self.known.get(&stack) {
            return *known;
        }
        let outermost_first = functions(&self.names.stack(stack)).into_iter().rev();
        let frames: Vec<FrameInfo> = outermost_first
            .map(|function| FrameInfo {
                frame: Frame::Label(profile.intern_string(&function.label())),
                category_pair: CategoryHandle::OTHER.into(),
                flags: FrameFlags::empty(),
            })
            .collect();
        let handle = profile.intern_stack_frames(thread, frames.into_iter());
        self.known.insert(stack, handle);
        handle
    }
}

//! Notes: failed requests, ended contexts, marks of the program.

use super::pack::Pack;
use super::stacks::Stacks;
use crate::error::Result;
use gpushim_trace::{Event, Kind, Record};

/// Most notes of each sort that are kept: the first ones.
const MOST: usize = 2_000;

/// One note of a recording.
struct Note {
    ns: u64,
    kind: Kind,
    size: u64,
    extra: [u64; 2],
    /// Allocated, reserved and the largest free block of the pools, each and one more; 0 is
    /// unknown.
    pools: [u64; 3],
    text: u32,
    stack: u32,
    thread: u32,
    device: u8,
    result: i16,
}

/// All notes of a recording.
#[derive(Default)]
pub struct Notes {
    /// Failures, and everything else: the one must not push out the other.
    failures: Vec<Note>,
    others: Vec<Note>,
    cut: u64,
}

impl Notes {
    /// Applies an event. `text` returns the name of a mark.
    pub fn feed(
        &mut self,
        record: &Record,
        stacks: &mut Stacks<'_>,
        text: impl FnOnce(u64) -> Option<String>,
    ) {
        let event = &record.event;
        let is_failure = match event.kind {
            Kind::OutOfMemory | Kind::TensorOutOfMemory => true,
            Kind::Alloc | Kind::TensorAlloc if event.result != 0 => true,
            Kind::Trim | Kind::ContextGone | Kind::Mark => false,
            Kind::PoolState => {
                self.pools(event);
                return;
            }
            _ => return,
        };
        let list = if is_failure {
            &mut self.failures
        } else {
            &mut self.others
        };
        if list.len() >= MOST {
            self.cut += 1;
            return;
        }
        let name = match event.kind {
            Kind::Mark => text(event.address).unwrap_or_default(),
            _ => String::new(),
        };
        list.push(Note {
            ns: record.ns,
            kind: event.kind,
            size: event.size,
            extra: event.extra,
            pools: [0; 3],
            text: stacks.text(&name),
            stack: if event.stack == 0 {
                0
            } else {
                stacks.stack(event.stack, event.class, event.size)
            },
            thread: event.thread,
            device: event.device,
            result: event.result,
        });
    }

    /// The state of the pools belongs to the last request that ran out of memory on the same
    /// thread.
    fn pools(&mut self, event: &Event) {
        let mut last = self.failures.iter_mut().rev();
        let is_its = |note: &&mut Note| {
            note.kind == Kind::OutOfMemory && note.thread == event.thread && note.pools == [0; 3]
        };
        if let Some(note) = last.find(is_its) {
            let [reserved, largest] = event.extra;
            note.pools = [event.size, reserved, largest].map(|bytes| bytes.saturating_add(1));
        }
    }

    /// Puts all of it into the payload.
    pub fn pack(self, pack: &mut Pack) -> Result<()> {
        pack.head("notes_cut", &self.cut)?;
        let mut all = self.failures;
        all.extend(self.others);
        all.sort_by_key(|note| note.ns);
        let kinds: Vec<_> = all.iter().map(|note| note.kind.name()).collect();
        pack.head("note_kind", &kinds)?;
        let results: Vec<_> = all.iter().map(|note| note.result).collect();
        pack.head("note_result", &results)?;
        pack.delta("note_ns", all.iter().map(|note| note.ns));
        pack.plain("note_size", all.iter().map(|note| note.size));
        pack.plain("note_text", all.iter().map(|note| note.text.into()));
        pack.plain("note_stack", all.iter().map(|note| note.stack.into()));
        pack.plain("note_thread", all.iter().map(|note| note.thread.into()));
        pack.plain("note_device", all.iter().map(|note| note.device.into()));
        for (name, at) in [("note_extra0", 0), ("note_extra1", 1)] {
            let extra = |note: &Note| note.extra.get(at).copied().unwrap_or(0);
            pack.plain(name, all.iter().map(extra));
        }
        for (name, at) in [
            ("note_allocated", 0),
            ("note_reserved", 1),
            ("note_largest", 2),
        ] {
            let pools = |note: &Note| note.pools.get(at).copied().unwrap_or(0);
            pack.plain(name, all.iter().map(pools));
        }
        Ok(())
    }
}

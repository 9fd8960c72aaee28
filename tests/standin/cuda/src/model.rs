//! Timeline and oracle together, and the findings: a program's errors on the device.

use std::ops::Range;
use std::sync::Arc;

use crate::alias::{self, Aliases, Reach};
use crate::clock::Lane;
use crate::finish::Gate;
use crate::oracle::{Item, Oracle, What};
use crate::timeline::{ContextId, Kind, Point, Timeline};

/// Bytes that an item reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    pub bytes: Range<u64>,
    /// True if the item writes them.
    pub writes: bool,
}

impl Touch {
    /// Returns a read of `bytes` bytes from `address`.
    pub fn read(address: u64, bytes: u64) -> Touch {
        Touch {
            bytes: address..address.saturating_add(bytes),
            writes: false,
        }
    }

    /// Returns a write of `bytes` bytes from `address`.
    pub fn write(address: u64, bytes: u64) -> Touch {
        Touch {
            writes: true,
            ..Touch::read(address, bytes)
        }
    }
}

/// All modelled work of the process.
#[derive(Default)]
pub struct Model {
    timeline: Timeline,
    aliases: Aliases,
    /// Accesses to memory, by place.
    oracle: Oracle,
    /// Accesses through mappings, by address. Only accesses that may still be active count.
    users: Oracle,
    findings: Vec<String>,
}

impl Model {
    /// Opens a context; `name` stands for its legacy stream in findings.
    pub fn open_context(&mut self, name: u64) -> ContextId {
        self.timeline.open_context(name)
    }

    /// Closes a context with its streams.
    pub fn close_context(&mut self, context: ContextId) {
        self.timeline.close_context(context);
    }

    /// Returns the lane of the context's legacy stream.
    pub fn legacy(&self, context: ContextId) -> Lane {
        self.timeline.legacy(context)
    }

    /// Opens a stream's lane; `name` is the stream's handle.
    pub fn open_lane(&mut self, context: ContextId, kind: Kind, name: u64) -> Lane {
        self.timeline.open_lane(context, kind, name)
    }

    /// Retires the lane of a destroyed stream.
    pub fn retire(&mut self, lane: Lane) {
        self.timeline.retire(lane);
    }

    /// Submits an item of `duration` nanoseconds that touches these bytes. A race is a finding.
    pub fn submit(&mut self, lane: Lane, what: What, touches: &[Touch], duration: u64, now: u64) {
        let seq = self.timeline.submit(lane, duration, now);
        let item = Item { lane, what, seq };
        let (clock, host) = (self.timeline.clock(lane), self.timeline.host());
        let mut found = None;
        for touch in touches {
            for reach in self.aliases.reach(touch.bytes.clone()) {
                let shift = reach.shift;
                if shift != 0 {
                    let addresses = reach.addresses.clone();
                    self.users
                        .access(addresses, touch.writes, item, clock, host);
                }
                let conflict = self.oracle.access(reach, touch.writes, item, clock, host);
                found = found.or(conflict.map(|conflict| (conflict, touch.writes, shift)));
            }
        }
        if let Some((conflict, writes, shift)) = found {
            let verb = |writes| if writes { "write" } else { "read" };
            self.findings.push(format!(
                "race: {} by {} is not ordered after {} by {}, {}",
                verb(writes),
                self.describe(&item),
                verb(conflict.earlier_wrote),
                self.describe(&conflict.earlier),
                alias::name(&conflict.bytes, shift, conflict.earlier_shift),
            ));
        }
    }

    /// Holds the lane's later work until `gate` opens.
    pub fn hold(&mut self, lane: Lane, gate: Arc<Gate>) {
        self.timeline.hold(lane, gate);
    }

    /// Returns the point that the lane has reached, without ordering anything.
    pub fn reached(&self, lane: Lane) -> Point {
        self.timeline.reached(lane)
    }

    /// Returns a point after everything submitted to the lane (`cuEventRecord`).
    pub fn record(&mut self, lane: Lane, now: u64) -> Point {
        self.timeline.record(lane, now)
    }

    /// Orders later work on the lane after the point (`cuStreamWaitEvent`).
    pub fn wait(&mut self, lane: Lane, point: &Point) {
        self.timeline.wait(lane, point);
    }

    /// Returns a point after all of the context's work (`cuCtxRecordEvent`).
    pub fn record_context(&mut self, context: ContextId) -> Point {
        self.timeline.record_context(context)
    }

    /// Orders all later work of the context after the point (`cuCtxWaitEvent`).
    pub fn wait_context(&mut self, context: ContextId, point: &Point) {
        self.timeline.wait_context(context, point);
    }

    /// Returns the point that synchronising with the stream waits for.
    pub fn target(&mut self, lane: Lane) -> Point {
        self.timeline.target(lane)
    }

    /// Returns the end of the lane's work.
    pub fn finish(&self, lane: Lane) -> &crate::finish::Finish {
        self.timeline.finish(lane)
    }

    /// Records that the host has seen the point complete. The caller has checked that it is.
    pub fn observe(&mut self, point: &Point) {
        self.timeline.observe(&point.clock);
    }

    /// Maps the addresses to physical memory, from this place on.
    pub fn map(&mut self, addresses: Range<u64>, place: u64) {
        self.aliases.map(addresses, place);
    }

    /// Removes the mappings that begin within the addresses, for `call`.
    ///
    /// This is a finding unless the host has seen all work that used these addresses complete. The
    /// memory and its history may remain at other addresses.
    pub fn unmap(&mut self, addresses: Range<u64>, call: &str) {
        self.withdraw(addresses.clone(), call);
        self.aliases.unmap(&addresses);
    }

    /// Splits the bytes at every change of the shift from their addresses to their places.
    pub fn reach(&self, bytes: Range<u64>) -> impl Iterator<Item = Reach> {
        self.aliases.reach(bytes)
    }

    /// Takes memory at these addresses away from the device, for `call`. This is a finding unless
    /// the host has seen all work on it complete.
    pub fn withdraw(&mut self, bytes: Range<u64>, call: &str) {
        // Accesses to mapped memory are in the history by address, accesses to other memory in the
        // history by place.
        let host = self.timeline.host();
        let pending = self.users.pending(bytes.clone(), host);
        if let Some(item) = pending.or_else(|| self.oracle.pending(bytes.clone(), host)) {
            self.findings.push(format!(
                "unfinished: {call} of {:#x}..{:#x} under {} that nobody has waited for",
                bytes.start,
                bytes.end,
                self.describe(&item),
            ));
        }
        self.users.forget(bytes.clone());
        self.oracle.forget(bytes);
    }

    /// Forgets all accesses to these addresses and to the memory there.
    pub fn forgive(&mut self, bytes: Range<u64>) {
        for reach in self.aliases.reach(bytes.clone()) {
            self.oracle.forget(reach.places());
        }
        self.users.forget(bytes);
    }

    /// Forgets all accesses to these places: they are new memory, or none any more.
    pub fn forget(&mut self, places: Range<u64>) {
        self.oracle.forget(places);
    }

    /// Adds a finding to the list.
    pub fn find(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// Returns the findings since the last call.
    pub fn take_findings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.findings)
    }

    /// True if the lane's later work is ordered after the point already.
    pub fn is_after(&self, lane: Lane, point: &Point) -> bool {
        self.timeline.clock(lane).includes(&point.clock)
    }

    /// True if there are findings to take.
    pub fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    fn describe(&self, item: &Item) -> String {
        format!(
            "{} (item {} of stream {:#x})",
            item.what,
            item.seq,
            self.timeline.name(item.lane)
        )
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod mapping_tests;

//! Timeline and oracle together, and the findings: what a program did wrong on the device.

use std::ops::Range;
use std::sync::Arc;

use crate::clock::Lane;
use crate::finish::Gate;
use crate::oracle::{Item, Oracle, What};
use crate::timeline::{ContextId, Kind, Point, Timeline};

/// Bytes that an item touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The bytes.
    pub bytes: Range<u64>,
    /// Whether it writes them.
    pub writes: bool,
}

impl Touch {
    /// Reads `bytes` bytes from `address`.
    pub fn read(address: u64, bytes: u64) -> Touch {
        Touch {
            bytes: address..address.saturating_add(bytes),
            writes: false,
        }
    }

    /// Writes `bytes` bytes from `address`.
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
    oracle: Oracle,
    findings: Vec<String>,
}

impl Model {
    /// A context; `name` stands for its legacy stream in findings.
    pub fn open_context(&mut self, name: u64) -> ContextId {
        self.timeline.open_context(name)
    }

    /// The context is gone.
    pub fn close_context(&mut self, context: ContextId) {
        self.timeline.close_context(context);
    }

    /// The lane of the context's legacy stream.
    pub fn legacy(&self, context: ContextId) -> Lane {
        self.timeline.legacy(context)
    }

    /// A stream's lane; `name` is its handle.
    pub fn open_lane(&mut self, context: ContextId, kind: Kind, name: u64) -> Lane {
        self.timeline.open_lane(context, kind, name)
    }

    /// The stream is destroyed.
    pub fn retire(&mut self, lane: Lane) {
        self.timeline.retire(lane);
    }

    /// An item of `duration` nanoseconds that touches these bytes.
    pub fn submit(&mut self, lane: Lane, what: What, touches: &[Touch], duration: u64, now: u64) {
        let seq = self.timeline.submit(lane, duration, now);
        let item = Item { lane, what, seq };
        let mut found = None;
        for touch in touches {
            let conflict = self.oracle.access(
                touch.bytes.clone(),
                touch.writes,
                item,
                self.timeline.clock(lane),
                self.timeline.host(),
            );
            if let (None, Some(conflict)) = (&found, conflict) {
                found = Some((conflict, touch.writes));
            }
        }
        if let Some((conflict, writes)) = found {
            let verb = |writes| if writes { "write" } else { "read" };
            self.findings.push(format!(
                "race: {} by {} is not ordered after {} by {}, bytes {:#x}..{:#x}",
                verb(writes),
                self.describe(&item),
                verb(conflict.earlier_wrote),
                self.describe(&conflict.earlier),
                conflict.bytes.start,
                conflict.bytes.end,
            ));
        }
    }

    /// The lane's later work waits for `gate`.
    pub fn hold(&mut self, lane: Lane, gate: Arc<Gate>) {
        self.timeline.hold(lane, gate);
    }

    /// A point after everything submitted to the lane (`cuEventRecord`).
    pub fn record(&mut self, lane: Lane, now: u64) -> Point {
        self.timeline.record(lane, now)
    }

    /// Later work on the lane comes after the point (`cuStreamWaitEvent`).
    pub fn wait(&mut self, lane: Lane, point: &Point) {
        self.timeline.wait(lane, point);
    }

    /// A point after all of the context's work (`cuCtxRecordEvent`).
    pub fn record_context(&mut self, context: ContextId) -> Point {
        self.timeline.record_context(context)
    }

    /// All later work of the context comes after the point (`cuCtxWaitEvent`).
    pub fn wait_context(&mut self, context: ContextId, point: &Point) {
        self.timeline.wait_context(context, point);
    }

    /// What synchronising with the stream waits for.
    pub fn target(&mut self, lane: Lane) -> Point {
        self.timeline.target(lane)
    }

    /// When the lane's work ends.
    pub fn finish(&self, lane: Lane) -> &crate::finish::Finish {
        self.timeline.finish(lane)
    }

    /// The host has seen the point done. The caller has checked that it is.
    pub fn observe(&mut self, point: &Point) {
        self.timeline.observe(&point.clock);
    }

    /// The bytes are taken from under the device (unmapped, released) by `call`: a finding unless
    /// the host has seen all work on them done.
    pub fn withdraw(&mut self, bytes: Range<u64>, call: &str) {
        if let Some(item) = self.oracle.pending(bytes.clone(), self.timeline.host()) {
            self.findings.push(format!(
                "unfinished: {call} of {:#x}..{:#x} under {} that nobody has waited for",
                bytes.start,
                bytes.end,
                self.describe(&item),
            ));
        }
        self.oracle.forget(bytes);
    }

    /// The bytes are new memory.
    pub fn forget(&mut self, bytes: Range<u64>) {
        self.oracle.forget(bytes);
    }

    /// Adds a finding.
    pub fn find(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// The findings since the last call.
    pub fn take_findings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.findings)
    }

    /// Whether the lane's later work comes after the point already.
    pub fn is_after(&self, lane: Lane, point: &Point) -> bool {
        !self.timeline.clock(lane).clone().join(&point.clock)
    }

    /// Whether there are findings to take.
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

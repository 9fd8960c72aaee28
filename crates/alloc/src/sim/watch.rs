//! Checks that the simulated device makes.

use super::clock::Clock;
use super::memory::{ALLOCATIONS, Part, overlap};
use super::{Call, Error, Event, Inner, Use, Work};
use crate::handles::Stream;

impl Inner {
    pub fn find(&mut self, finding: Option<String>) {
        self.findings.extend(finding);
    }

    /// Drops work that the host knows to be complete: it comes before all later work.
    pub fn prune(&mut self) {
        let time = &self.time;
        self.works
            .retain(|work| !time.is_known(work.stream, work.number));
    }

    /// Records an allocation by a pool. Returns its number.
    pub fn granted(&mut self, address: u64, bytes: u64) -> u64 {
        if let Err(why) = self.memory.resolve(address, bytes, 0) {
            self.findings.push(format!("handed out: {why}"));
        }
        if self.memory.is_granted(address, bytes) {
            let twice = format!("{address:#x} was handed out twice");
            self.findings.push(twice);
        }
        let mut below = self.memory.within(address, bytes);
        let is_reached = below.any(|(at, mapping)| *at >= ALLOCATIONS && mapping.pinned);
        drop(below);
        if is_reached {
            let again = format!("{address:#x}, which others reach, was handed out again");
            self.findings.push(again);
        }
        self.granted += 1;
        let number = self.granted;
        self.memory.grants.insert(address, (bytes, number));
        number
    }

    /// Checks that no memory of a graph was reused, before the graph runs.
    pub fn check_replay(&mut self, uses: &[Use]) {
        for (address, bytes, number) in uses {
            let others = self.memory.grants.range(..address + bytes);
            let mut taken = others.filter(|(at, (size, n))| **at + size > *address && n != number);
            if taken.next().is_some() {
                let given = format!("memory {address:#x} of a graph was given away");
                self.findings.push(given);
            }
        }
    }

    /// Counts a call. Returns the error if the call is to fail, or true if it is to lie.
    pub fn enter(&mut self, pool: usize, call: Call) -> Result<bool, Error> {
        let count = self.calls.entry((pool, call)).or_default();
        *count += 1;
        if let Some((failing, every, error)) = self.failing
            && failing == call
            && count.is_multiple_of(every)
        {
            return Err(error);
        }
        Ok(self.lies(call))
    }

    /// True if such calls have no effect.
    pub fn lies(&self, call: Call) -> bool {
        self.lying == Some(call)
    }

    /// Checks a call that may be illegal while a stream captures.
    pub fn capturable(&mut self, call: Call, stream: Option<Stream>) {
        let legal = match stream {
            _ if self.capturing.is_empty() => true,
            Some(stream) => stream.handle != Stream::ALL && !self.capturing.contains(&stream),
            None => false,
        };
        if !legal {
            self.findings
                .push(format!("{call:?} invalidates a capture"));
        }
    }

    pub fn launch(&mut self, stream: Stream, uses: &[Use]) {
        let device = self.time.device(stream.context).unwrap_or(0);
        let Some((queue, number, clock)) = self.time.submit(stream) else {
            self.findings.push(format!("the program has no {stream:?}"));
            return;
        };
        let mut placed = Vec::with_capacity(uses.len());
        for used in uses {
            match self.memory.resolve(used.0, used.1, device) {
                Ok(parts) => placed.push((*used, parts)),
                Err(why) => self.findings.push(format!("in use: {why}")),
            }
        }
        for work in &self.works {
            if clock.covers(work.stream, work.number) {
                continue;
            }
            for (mine, parts) in &placed {
                let others = work.uses.iter().filter(|(other, _)| other.2 != mine.2);
                let mut touched = others.flat_map(|(_, parts)| parts);
                let clash = |a: &Part| {
                    parts
                        .iter()
                        .any(|b| a.0 == b.0 && overlap(a.1, a.2, b.1, b.2))
                };
                if touched.any(clash) {
                    self.findings
                        .push(format!("race on {:#x}, used on {stream:?}", mine.0));
                }
            }
        }
        let uses = placed;
        self.works.push(Work {
            stream: queue,
            number,
            uses,
        });
    }

    /// Checks that memory to be unmapped is not in use.
    pub fn vanish(&mut self, address: u64, bytes: u64) {
        let uses = |work: &Work| {
            let mut uses = work.uses.iter();
            uses.any(|(used, _)| overlap(used.0, used.1, address, bytes))
        };
        if self.works.iter().any(uses) {
            self.findings
                .push(format!("{address:#x} is unmapped under work"));
        }
        if self.memory.is_granted(address, bytes) {
            self.findings
                .push(format!("{address:#x} is unmapped while handed out"));
        }
    }

    pub fn event(&mut self, event: Event) -> Result<Clock, Error> {
        self.time.event(event.0).map_err(|why| {
            self.findings.push(why.into());
            Error::Failed
        })
    }

    pub fn set_access(&mut self, address: u64, bytes: u64, change: impl Fn(&mut u8)) {
        let within: Vec<u64> = self
            .memory
            .within(address, bytes)
            .map(|(at, _)| *at)
            .collect();
        if within.is_empty() {
            self.find(Some(format!("access to {address:#x}, where nothing is")));
        }
        for at in within {
            if let Some(mapping) = self.memory.mappings.get_mut(&at) {
                change(&mut mapping.access);
            }
        }
    }
}

//! Communicators of NCCL and their memory. NCCL allocates the memory on threads of its own.

use gpushim_trace::{Event, Kind, Record};

use crate::ledger::Block;

/// A communicator, or a set of communicators from one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// Ticket of the event at its begin.
    begin: u64,
    /// Ticket of the event at its end; the largest number until that event.
    end: u64,
    /// Thread that made the call.
    thread: u32,
    /// Device that was current on the thread.
    device: u8,
    /// Number of its ranks; 0 if unknown.
    pub ranks: u64,
    /// Stack of the call that made it.
    pub stack: u32,
    /// Number of open calls within the call, since functions of NCCL may call each other.
    within: u32,
}

/// Communicators of a recording, in the order of their begin.
#[derive(Clone, Debug, Default)]
pub struct Communicators(Vec<Communicator>);

impl Communicators {
    /// Handles an event; events of other kinds are ignored.
    pub fn event(&mut self, record: &Record) {
        let event = &record.event;
        if !matches!(event.kind, Kind::CommunicatorBegin | Kind::CommunicatorEnd) {
            return;
        }
        let open =
            (self.0.iter_mut().rev()).find(|one| one.thread == event.thread && one.end == u64::MAX);
        match (event.kind, open) {
            (Kind::CommunicatorBegin, Some(open)) => open.within += 1,
            (Kind::CommunicatorBegin, None) => self.0.push(Communicator {
                begin: record.ticket,
                end: u64::MAX,
                thread: event.thread,
                device: event.device,
                ranks: event.extra[0],
                stack: event.stack,
                within: 0,
            }),
            (Kind::CommunicatorEnd, Some(open)) if open.within > 0 => open.within -= 1,
            (Kind::CommunicatorEnd, Some(open)) => open.end = record.ticket,
            _ => {}
        }
    }

    /// Finds the communicator in whose making a block was allocated, and returns its index. It must
    /// be the only open one that matches: by thread, else among all, else by device.
    pub fn of(&self, block: &Block) -> Option<usize> {
        let then = |one: &Communicator| one.begin <= block.ticket && block.ticket < one.end;
        let is_its: [fn(&Communicator, &Block) -> bool; 3] = [
            |one, block| one.thread == block.thread,
            |_, _| true,
            |one, block| one.device == block.device && one.device != Event::NO_DEVICE,
        ];
        is_its.iter().find_map(|fits| {
            let mut fitting = (self.0.iter().enumerate())
                .filter(|(_, one)| then(one) && fits(one, block))
                .map(|(number, _)| number);
            fitting.next().filter(|_| fitting.next().is_none())
        })
    }

    /// True if the recording has no communicators.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the communicator of an index.
    pub fn get(&self, number: usize) -> Option<&Communicator> {
        self.0.get(number)
    }

    /// Returns the index of the only communicator of a device.
    pub fn only_on(&self, device: u8) -> Option<usize> {
        let mut on = (self.0.iter().enumerate()).filter(|(_, one)| one.device == device);
        on.next()
            .map(|(number, _)| number)
            .filter(|_| on.next().is_none())
    }
}

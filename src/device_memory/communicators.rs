//! Communicators of NCCL, and which of them memory was taken for: NCCL takes it on threads of its own.

use gpushim_trace::{Event, Kind, Record};

use crate::ledger::Block;

/// A communicator, or a set of them that one call made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// The place of the event that it began with.
    begin: u64,
    /// The place of the event that it was done with; the largest number while that has not come.
    end: u64,
    /// The thread that asked for it.
    thread: u32,
    /// The device that was current on it.
    device: u8,
    /// Its ranks; 0 if that is not known.
    pub ranks: u64,
    /// The stack of the call that made it.
    pub stack: u32,
    /// Calls within the call: one function of NCCL's may call another.
    within: u32,
}

/// The communicators of a recording, in the order of their beginnings.
#[derive(Clone, Debug, Default)]
pub struct Communicators(Vec<Communicator>);

impl Communicators {
    /// Takes an event in, if it is about them.
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

    /// Finds the communicator during whose making a block came, and returns its number. Of several it is
    /// the only one with the thread or the device of the block.
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

    /// Tells that no communicator was seen to be made.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The communicator of a number.
    pub fn get(&self, number: usize) -> Option<&Communicator> {
        self.0.get(number)
    }

    /// The only one that was ever made on a device, by its number.
    pub fn only_on(&self, device: u8) -> Option<usize> {
        let mut on = (self.0.iter().enumerate()).filter(|(_, one)| one.device == device);
        on.next()
            .map(|(number, _)| number)
            .filter(|_| on.next().is_none())
    }
}

//! An event of a log, as it is kept in memory.

use gpushim_trace::{Class, Event, Kind, Record};

/// The code `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i16 = 2;

/// A stream, 0 if there is none, and a thread.
pub(super) type By = (u64, u32);

/// An event that the reader of a log takes from a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub ns: u64,
    pub address: u64,
    pub size: u64,
    /// The number of the block, in the order of allocation. It is valid if the log is plain and its
    /// blocks can be numbered.
    pub block: u32,
    /// The place of its stream and thread.
    pub by: u32,
    pub kind: Kind,
    pub class: Class,
}

impl Row {
    /// Returns the event, which has this place among all.
    pub(super) fn record(&self, ticket: u64, by: &[By]) -> Record {
        let (stream, thread) = by.get(self.by as usize).copied().unwrap_or_default();
        let result = match self.kind {
            Kind::OutOfMemory => OUT_OF_MEMORY,
            _ => 0,
        };
        Record {
            ticket,
            ns: self.ns,
            event: Event {
                thread,
                // Such a log has one memory resource, and so one device, which it does not name.
                device: 0,
                result,
                address: self.address,
                size: self.size,
                extra: [stream, 0],
                ..Event::new(self.kind, self.class)
            },
        }
    }
}

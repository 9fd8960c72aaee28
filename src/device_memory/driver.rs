//! Memory of a device that the driver uses for itself: contexts, code, executable graphs; and that of
//! other processes.

use gpushim_trace::{Kind, Record};

/// The driver's part of a device at a moment, bytes. What is not known yet is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverPart {
    /// Taken when code was loaded.
    pub modules: i128,
    /// Taken when graphs became executable, less what their ends returned.
    pub graphs: i128,
    /// In use by all processes and none of the above, nor reserved.
    pub rest: Option<i128>,
    /// In use by others than this process.
    pub others: Option<i128>,
}

/// The driver's part of a device, followed over a run.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// The part as it is now, followed.
    pub now: DriverPart,
    /// The part as it was first said.
    first: DriverPart,
    /// In use by all processes when the first context had been made.
    pub context_made: Option<i128>,
    /// Bytes of the whole device.
    pub total: Option<u64>,
    /// The fewest bytes that were free at any moment that the driver was asked.
    pub least_free: Option<u64>,
}

impl Driver {
    /// Takes an event in. `reserved`: bytes that the process held then. Returns false if it says nothing
    /// of the driver's memory.
    pub fn event(&mut self, record: &Record, reserved: i128) -> bool {
        let event = &record.event;
        let bytes = i128::from(event.size);
        match event.kind {
            Kind::ModuleLoad => self.now.modules += bytes,
            Kind::GraphMade => self.now.graphs += bytes,
            Kind::GraphGone => self.now.graphs = (self.now.graphs - bytes).max(0),
            Kind::ContextMade => {
                self.context_made.get_or_insert(bytes);
            }
            Kind::DeviceMemory => self.asked(event.extra, reserved),
            Kind::OutOfMemory if event.extra[1] > 0 => self.asked(event.extra, reserved),
            Kind::ProcessMemory => {
                let [free, total] = event.extra.map(i128::from);
                let others = (total - free - bytes).max(0);
                self.now.others = Some(others);
                self.first.others.get_or_insert(others);
            }
            _ => return false,
        }
        true
    }

    /// The driver said how much is free, of how much.
    fn asked(&mut self, [free, total]: [u64; 2], reserved: i128) {
        let in_use = i128::from(total) - i128::from(free);
        let rest = in_use - reserved - self.now.modules - self.now.graphs;
        self.now.rest = Some(rest);
        self.first.rest.get_or_insert(rest);
        self.total = Some(total);
        self.least_free = Some(self.least_free.map_or(free, |least| least.min(free)));
    }

    /// Completes a moment's part by the first figures, where there had been none then.
    pub fn completed(&self, then: DriverPart) -> DriverPart {
        DriverPart {
            rest: then.rest.or(self.first.rest),
            others: then.others.or(self.first.others),
            ..then
        }
    }
}

//! Device memory that the driver uses for contexts, code and executable graphs, and the memory of
//! other processes.

use gpushim_trace::{Kind, Record};

/// Driver memory of a device at a moment, bytes. Figures that are not known yet are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverPart {
    /// Bytes that were taken by loading code.
    pub modules: i128,
    /// Bytes that were taken for executable graphs, less the returned bytes.
    pub graphs: i128,
    /// Bytes in use by all processes that are neither reserved nor counted above.
    pub rest: Option<i128>,
    /// Bytes in use outside of this process.
    pub others: Option<i128>,
}

/// Driver memory of a device over a run.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// Driver memory at present.
    pub now: DriverPart,
    /// First known figures of `rest` and `others`.
    first: DriverPart,
    /// Bytes in use by all processes after the first context was made.
    pub context_made: Option<i128>,
    /// Bytes of the whole device.
    pub total: Option<u64>,
    /// Fewest free bytes in any answer of the driver.
    pub least_free: Option<u64>,
}

impl Driver {
    /// Handles an event. `reserved` is the bytes that the process held then. Returns false if the
    /// event has no figures of the driver's memory.
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

    /// Handles free and total bytes from the driver.
    fn asked(&mut self, [free, total]: [u64; 2], reserved: i128) {
        let in_use = i128::from(total) - i128::from(free);
        let rest = in_use - reserved - self.now.modules - self.now.graphs;
        self.now.rest = Some(rest);
        self.first.rest.get_or_insert(rest);
        self.total = Some(total);
        self.least_free = Some(self.least_free.map_or(free, |least| least.min(free)));
    }

    /// Fills the unknown figures of a moment with the first known ones.
    pub fn completed(&self, then: DriverPart) -> DriverPart {
        DriverPart {
            rest: then.rest.or(self.first.rest),
            others: then.others.or(self.first.others),
            ..then
        }
    }
}

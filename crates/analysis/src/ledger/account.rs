//! The sums of a run: their highest and last values, by device.

use super::apply::Ledger;
use super::block::Block;
use super::change::{Change, Step, Sum};
use gpushim_trace::{Class, Layer, LiveBlock, Record};

/// A quantity over time, bytes.
///
/// The bytes that were live before the first readable event are unknown. Later frees without an
/// allocation show them: their sum must have been there at the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    now: i128,
    peak: i128,
    /// Bytes freed without a readable allocation.
    missing: i128,
    /// Time of the peak, ns since the start, and the place of the first event after it.
    pub at: Option<(u64, u64)>,
}

impl Level {
    fn step(&mut self, step: Step, bytes: u64, record: &Record) {
        let bytes = i128::from(bytes);
        match step {
            Step::WasThere => {
                self.is_highest_before(record);
                self.missing += bytes;
            }
            Step::Rise => self.set(self.now + bytes, record),
            Step::Fall => {
                self.is_highest_before(record);
                self.now -= bytes;
            }
            Step::FallUnseen => {
                self.is_highest_before(record);
                self.now -= bytes;
                self.missing += bytes;
            }
            Step::Set => self.set(bytes, record),
        }
    }

    /// Takes the level before this event as the peak, unless a later level is higher.
    fn is_highest_before(&mut self, record: &Record) {
        self.at.get_or_insert((record.ns, record.ticket));
    }

    fn set(&mut self, now: i128, record: &Record) {
        self.now = now;
        if self.now > self.peak || self.at.is_none() {
            self.peak = self.now;
            self.at = Some((record.ns, record.ticket.saturating_add(1)));
        }
    }

    /// Adds bytes that were there before the first event, and are after the last.
    fn was_there(&mut self, bytes: u64) {
        self.missing += i128::from(bytes);
    }

    /// Returns the highest value, bytes.
    pub fn peak(&self) -> u64 {
        to_bytes(self.peak.max(0) + self.missing)
    }

    /// Raises the final value to at least `bytes`, the memory that is live after the last event.
    /// Returns the bytes that no event allocated.
    fn end_is_at_least(&mut self, bytes: u64) -> u64 {
        let short = bytes.saturating_sub(self.end());
        self.was_there(short);
        short
    }

    /// Returns the value before the first event, bytes, as far as it is known after the last.
    pub fn start(&self) -> u64 {
        to_bytes(self.missing)
    }

    /// Returns the value after the last event, bytes.
    pub fn end(&self) -> u64 {
        to_bytes(self.now + self.missing)
    }
}

fn to_bytes(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

/// Sums of memory of one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceAccount {
    /// Bytes requested by the program or a framework.
    pub requested: Level,
    /// Bytes allocated, rounded to blocks.
    pub allocated: Level,
    /// Bytes reserved from the driver, by the pool or directly.
    pub reserved: Level,
    /// Bytes of tensors, by their own sizes.
    pub tensors: Level,
    /// The framework's own figures, allocated and reserved, if it reports them.
    pub framework: Option<[Level; 2]>,
    /// The driver's figure of bytes in use by all processes, if recorded.
    pub in_use: Option<Level>,
    /// Memory that was reserved and not allocated when most was allocated: by the pools, and by a
    /// framework.
    pub unused: [Unused; 2],
    /// True if the process has memory there; false if only the driver reported on the device.
    pub is_used: bool,
}

/// Memory that an allocator had reserved and not allocated when it had allocated most, to within
/// one part in a hundred. Of several such moments it is the one with most unused memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unused {
    /// The highest allocated bytes; `allocated` and `bytes` are the figures of the moment.
    peak: i128,
    allocated: i128,
    bytes: i128,
    /// Time of the moment, ns since the start.
    pub ns: u64,
}

impl Unused {
    fn look(&mut self, reserved: &Level, allocated: &Level, ns: u64) {
        self.peak = self.peak.max(allocated.now);
        let is_peak = |allocated: i128| allocated * 100 >= self.peak * 99;
        let bytes = reserved.now - allocated.now;
        if is_peak(allocated.now) && (bytes > self.bytes || !is_peak(self.allocated)) {
            (self.allocated, self.bytes, self.ns) = (allocated.now, bytes, ns);
        }
    }

    /// Returns the bytes that were not allocated, and the bytes reserved. The levels are the ones
    /// after the last event.
    pub fn bytes(&self, reserved: &Level, allocated: &Level) -> [u64; 2] {
        let bytes = self.bytes + reserved.missing - allocated.missing;
        [bytes, self.allocated + self.bytes + reserved.missing].map(to_bytes)
    }
}

/// The sums of a process, and the ledger that they are computed from.
#[derive(Debug, Default)]
pub struct Account {
    /// Sums by device ordinal; [`Event::NO_DEVICE`](gpushim_trace::Event::NO_DEVICE) has the events
    /// that name none. There are a few at most.
    pub devices: Vec<(u8, DeviceAccount)>,
    ledger: Ledger,
    /// Bytes of destroyed contexts whose blocks could not be distinguished from the blocks of other
    /// contexts.
    pub ambiguous: u64,
}

impl DeviceAccount {
    fn level(&mut self, sum: Sum) -> Option<&mut Level> {
        Some(match sum {
            Sum::Live(Layer::Device) => &mut self.requested,
            Sum::Live(Layer::Tensor) => &mut self.tensors,
            Sum::Live(_) => return None,
            Sum::Allocated => &mut self.allocated,
            Sum::Reserved => &mut self.reserved,
            Sum::FrameworkAllocated => &mut self.framework.get_or_insert_default()[0],
            Sum::FrameworkReserved => &mut self.framework.get_or_insert_default()[1],
            Sum::InUse => self.in_use.get_or_insert_default(),
        })
    }

    /// Updates the unused memory, after a sum has changed.
    fn look(&mut self, changed: Sum, ns: u64) {
        match (changed, &self.framework) {
            (Sum::Allocated | Sum::Reserved, _) => {
                self.unused[0].look(&self.reserved, &self.allocated, ns);
            }
            // A framework reports both at once, the reserved bytes last.
            (Sum::FrameworkReserved, Some([allocated, reserved])) => {
                self.unused[1].look(reserved, allocated, ns);
            }
            _ => {}
        }
    }

    /// Sets the live bytes of a layer after the last event. Bytes that the events do not explain
    /// were live before the first one, in blocks whose requested size alone is known.
    pub fn live_at_end(&mut self, layer: Layer, bytes: u64) {
        match layer {
            Layer::Device => {
                let short = self.requested.end_is_at_least(bytes);
                self.allocated.was_there(short);
                self.reserved.end_is_at_least(self.allocated.end());
            }
            Layer::Tensor => {
                self.tensors.end_is_at_least(bytes);
            }
            _ => {}
        }
    }
}

impl Account {
    /// Creates sums that assign events without a device to this device.
    pub fn of_only(device: Option<u8>) -> Account {
        Account {
            ledger: Ledger::new(device),
            ..Account::default()
        }
    }

    /// Adds the blocks that were allocated before the first event and live after the last one. Must
    /// be called before any event.
    pub fn begin(&mut self, older: &[LiveBlock], first: &Record, mut say: impl FnMut(&Change)) {
        let Account {
            devices, ledger, ..
        } = self;
        ledger.begin(older, &mut |change| {
            say(change);
            take(devices, change, first);
        });
    }

    /// Takes an event into account.
    pub fn feed(&mut self, record: &Record) {
        self.feed_and(record, |_| {});
    }

    /// Takes an event into account, and calls `say` with each change.
    pub fn feed_and(&mut self, record: &Record, mut say: impl FnMut(&Change)) {
        let Account {
            devices,
            ledger,
            ambiguous,
        } = self;
        ledger.apply(record, &mut |change| {
            say(change);
            if let Change::Ambiguous { allocated, .. } = change {
                *ambiguous = ambiguous.saturating_add(*allocated);
            }
            take(devices, change, record);
        });
    }

    /// Returns the ledger of live blocks.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the live blocks of a layer on a device.
    pub fn live(&self, layer: Layer, device: u8) -> impl Iterator<Item = &Block> {
        let all = self.ledger.live(layer).values();
        all.filter(move |block| block.device == device)
    }

    /// Returns the number and the bytes of the live blocks of a class.
    pub fn live_of(&self, class: Class) -> (u64, u64) {
        let all = self.ledger.live(class.layer()).values();
        let of_class = all.filter(|block| block.class == class);
        of_class.fold((0, 0), |(count, bytes), block| {
            (count + 1, block.size.saturating_add(bytes))
        })
    }
}

/// Adds a change to the sums of its device.
fn take(devices: &mut Vec<(u8, DeviceAccount)>, change: &Change, record: &Record) {
    change.steps(|ordinal, sum, step, bytes| {
        if matches!(
            sum,
            Sum::Live(Layer::Managed | Layer::Host | Layer::Mapping)
        ) {
            return;
        }
        let known = devices.iter().position(|(of, _)| *of == ordinal);
        let at = known.unwrap_or_else(|| {
            devices.push((ordinal, DeviceAccount::default()));
            devices.len() - 1
        });
        devices[at].1.is_used |= sum != Sum::InUse;
        if let Some(level) = devices[at].1.level(sum) {
            level.step(step, bytes, record);
        }
        devices[at].1.look(sum, record.ns);
    });
}

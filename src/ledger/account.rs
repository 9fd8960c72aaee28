//! The sums of a run: their highest and last values, by device.

use super::apply::Ledger;
use super::block::Block;
use super::change::{Change, Step, Sum};
use gpushim_trace::{Class, Layer, LiveBlock, Record};

/// A quantity over time, bytes.
///
/// What was live before the first readable event is unknown. As far as it is freed later, the
/// frees tell: they lack their allocation, and their sum is what must have been there at the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    now: i128,
    peak: i128,
    /// Freed without a readable allocation.
    missing: i128,
    /// When the peak was, ns since the start, and the place of the first event after it.
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

    /// The peak is what was there before this event, as long as nothing rises above it.
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

    /// Was there before the first event, and is after the last.
    fn was_there(&mut self, bytes: u64) {
        self.missing += i128::from(bytes);
    }

    /// The highest value, bytes.
    pub fn peak(&self) -> u64 {
        to_bytes(self.peak.max(0) + self.missing)
    }

    /// Raises the final value to at least `bytes`: memory that is known to be live after the last event, and that no
    /// event allocated.
    fn end_is_at_least(&mut self, bytes: u64) -> u64 {
        let short = bytes.saturating_sub(self.end());
        self.was_there(short);
        short
    }

    /// The value before the first event, bytes, as far as it is known after the last.
    pub fn start(&self) -> u64 {
        to_bytes(self.missing)
    }

    /// The value after the last event, bytes.
    pub fn end(&self) -> u64 {
        to_bytes(self.now + self.missing)
    }
}

fn to_bytes(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

/// The sums of one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceAccount {
    /// Asked for by the program or a framework.
    pub requested: Level,
    /// Handed out, rounded to blocks.
    pub allocated: Level,
    /// Held from the driver, by the pool or directly.
    pub reserved: Level,
    /// Tensors, by their own sizes.
    pub tensors: Level,
    /// What the framework says of itself, allocated and reserved, if it says it.
    pub framework: Option<[Level; 2]>,
    /// What the driver says is in use, by all processes, if it says it.
    pub in_use: Option<Level>,
    /// Memory that was reserved and not handed out when most was handed out: by the pools, and by a
    /// framework.
    pub unused: [Unused; 2],
    /// Whether the process has anything there, and it is not only the driver that speaks of it.
    pub is_used: bool,
}

/// Memory that an allocator had reserved and not handed out when it had handed out most, to within one part
/// in a hundred. Of several such moments it is the one with most unused memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unused {
    /// The most that was handed out, and what was at the moment.
    peak: i128,
    allocated: i128,
    bytes: i128,
    /// When, ns since the start.
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

    /// Bytes that were not handed out, and bytes reserved; of these levels after the last event.
    pub fn bytes(&self, reserved: &Level, allocated: &Level) -> [u64; 2] {
        let bytes = self.bytes + reserved.missing - allocated.missing;
        [bytes, self.allocated + self.bytes + reserved.missing].map(to_bytes)
    }
}

/// The sums of a process, and what they are made of.
#[derive(Debug, Default)]
pub struct Account {
    /// By device ordinal, [`Event::NO_DEVICE`](gpushim_trace::Event::NO_DEVICE) for what names none; there are a few at
    /// most.
    pub devices: Vec<(u8, DeviceAccount)>,
    ledger: Ledger,
    /// Bytes of destroyed contexts whose blocks could not be distinguished from those of other contexts.
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

    /// Looks at what is reserved and not handed out, after a sum has changed.
    fn look(&mut self, changed: Sum, ns: u64) {
        match (changed, &self.framework) {
            (Sum::Allocated | Sum::Reserved, _) => {
                self.unused[0].look(&self.reserved, &self.allocated, ns);
            }
            // A framework says both at once, this one last.
            (Sum::FrameworkReserved, Some([allocated, reserved])) => {
                self.unused[1].look(reserved, allocated, ns);
            }
            _ => {}
        }
    }

    /// Sets the live bytes of a layer after the last event. Bytes that the events do not account for were live before
    /// the first of them, in blocks of which only the size asked for is known.
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
    /// Sums in which events that name no device are of this one.
    pub fn of_only(device: Option<u8>) -> Account {
        Account {
            ledger: Ledger::new(device),
            ..Account::default()
        }
    }

    /// Adds the blocks that were allocated before the first event and live after the last one. To be called before any
    /// event.
    pub fn begin(&mut self, older: &[LiveBlock], first: &Record, mut say: impl FnMut(&Change)) {
        let Account {
            devices, ledger, ..
        } = self;
        ledger.begin(older, &mut |change| {
            say(change);
            take(devices, change, first);
        });
    }

    /// Takes in an event.
    pub fn feed(&mut self, record: &Record) {
        self.feed_and(record, |_| {});
    }

    /// Takes in an event, and tells what it changes.
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

    /// What it is made of.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Live bytes of a layer on a device.
    pub fn live(&self, layer: Layer, device: u8) -> impl Iterator<Item = &Block> {
        let all = self.ledger.live(layer).values();
        all.filter(move |block| block.device == device)
    }

    /// Blocks and bytes of a class that are live now.
    pub fn live_of(&self, class: Class) -> (u64, u64) {
        let all = self.ledger.live(class.layer()).values();
        let of_class = all.filter(|block| block.class == class);
        of_class.fold((0, 0), |(count, bytes), block| {
            (count + 1, block.size.saturating_add(bytes))
        })
    }
}

/// Takes a change into the sums of its device.
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

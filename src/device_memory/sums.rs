//! Sums of the memory of each device, by the marks of its owner. One pass over the events computes
//! them for a chosen moment and for the end.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::communicators::Communicators;
use super::driver::{Driver, DriverPart};
use crate::ledger::{Block, Change, Ledger, Step, Sum};
use crate::recording::Recording;
use gpushim_trace::{Class, Event, Kind, Layer, LiveBlock, Record};

/// Moment that the sums are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Moment of the most memory held from the driver; of several, the one with most handed out.
    Peak,
    /// Moment just before the event with this ticket.
    Ticket(u64),
    /// Moment after the last event.
    End,
}

/// Marks of a block that determine its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// True for a framework's tensor. The memory around it is counted, too.
    pub is_tensor: bool,
    /// Class of memory in the trace.
    pub class: Class,
    /// Id of the allocation's stack.
    pub stack: u32,
    /// True if it was allocated in a stream capture, or lies in such memory.
    pub captured: bool,
    /// True if it was allocated before the recording began and has no stack.
    pub earlier: bool,
    /// Thread that allocated it; 0 for a tensor.
    pub thread: u32,
    /// Communicator of NCCL in whose making it was allocated.
    pub communicator: Option<usize>,
}

/// An amount of live memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    bytes: i128,
    blocks: i64,
}

impl Held {
    fn add(&mut self, bytes: u64, sign: i8) {
        self.bytes += i128::from(sign) * i128::from(bytes);
        self.blocks += i64::from(sign);
    }
}

/// Sums of a key: now, at the chosen moment, and before the first event.
#[derive(Clone, Copy, Debug, Default)]
struct OfKey {
    now: Held,
    then: Held,
    missing: Held,
}

/// Totals at a moment, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Time of the moment, ns since the start.
    pub ns: u64,
    /// Known bytes that the process held from the driver.
    pub reserved: i128,
    /// Bytes that the framework held according to itself.
    pub framework: Option<u64>,
    /// Memory of the driver itself.
    pub driver: DriverPart,
}

/// Sums of a single device.
#[derive(Debug, Default)]
pub struct DeviceSums {
    keys: FxHashMap<Key, OfKey>,
    /// Keys whose current sums differ from the sums of the moment.
    changed: FxHashSet<Key>,
    now: Totals,
    then: Option<Totals>,
    /// Bytes that are handed out: the rooms of blocks, and tensors.
    handed_out: i128,
    highest: Option<(i128, i128)>,
    /// Bytes that were reserved before the first event.
    missing: i128,
    /// Driver memory over the run.
    pub driver: Driver,
    /// True if the process has blocks or segments on the device.
    is_used: bool,
}

/// Sums of a recording, by device.
#[derive(Debug)]
pub struct MemorySums {
    when: When,
    is_taken: bool,
    devices: BTreeMap<u8, DeviceSums>,
    /// Communicators of NCCL in the recording.
    pub communicators: Communicators,
    /// Bytes of memory that was allocated in a stream capture, by device and address. If a
    /// framework allocated it, it belongs to a pool of graphs.
    captured: BTreeMap<(u8, u64), u64>,
}

impl MemorySums {
    /// Makes empty sums for a moment.
    pub fn new(when: When) -> MemorySums {
        MemorySums {
            when,
            is_taken: false,
            devices: BTreeMap::new(),
            communicators: Communicators::default(),
            captured: BTreeMap::new(),
        }
    }

    /// Sums up a whole recording.
    pub fn of(recording: &dyn Recording, when: When) -> MemorySums {
        let mut memory = MemorySums::new(when);
        let mut ledger = Ledger::new(only_device(recording));
        let mut kept: Option<Vec<LiveBlock>> = recording.live();
        for record in recording.events() {
            if let Some(mut older) = kept.take() {
                older.retain(|one| one.ns < record.ns);
                ledger.begin(&older, &mut |change| memory.change(change, &record));
            }
            memory.event(&record, &ledger);
            ledger.apply(&record, &mut |change| memory.change(change, &record));
        }
        memory
    }

    /// Handles an event before its changes are applied.
    pub fn event(&mut self, record: &Record, ledger: &Ledger) {
        if let When::Ticket(ticket) = self.when
            && record.ticket >= ticket
            && !self.is_taken
        {
            self.is_taken = true;
            self.devices.values_mut().for_each(DeviceSums::take);
        }
        self.communicators.event(record);
        let is_of_driver = matches!(
            record.event.kind,
            Kind::ModuleLoad
                | Kind::GraphMade
                | Kind::GraphGone
                | Kind::ContextMade
                | Kind::DeviceMemory
                | Kind::ProcessMemory
                | Kind::OutOfMemory
        );
        if is_of_driver {
            let device = ledger.ordinal_of(record.event.device);
            let is_peak = self.when == When::Peak;
            let of = self.device(device);
            of.driver.event(record, of.now.reserved);
            (of.now.driver, of.now.ns) = (of.driver.now, record.ns);
            if is_peak {
                of.look();
            }
        }
    }

    /// Applies a change of an event.
    pub fn change(&mut self, change: &Change, record: &Record) {
        let (block, sign) = match change {
            Change::WasThere(block) | Change::Allocated(block) => (Some(block), 1),
            Change::Freed(block) | Change::FreedUnseen(block) => (Some(block), -1),
            _ => (None, 0),
        };
        let key = block.and_then(|block| Some((block, self.key(block, sign > 0)?)));
        let is_peak = self.when == When::Peak;
        let of = self.device(change.device());
        of.now.ns = record.ns;
        change.steps(|_, sum, step, bytes| of.step(sum, step, bytes));
        if let Some((block, key)) = key {
            of.is_used = true;
            let is_missing = matches!(change, Change::FreedUnseen(_) | Change::WasThere(_));
            let bytes = if key.is_tensor {
                block.size
            } else {
                block.room
            };
            // Memory from before the first event counts at every moment until it ends.
            match (is_missing, sign > 0) {
                (true, true) => of.was_there(key, bytes),
                (true, false) => {
                    of.was_there(key, bytes);
                    of.add(key, bytes, -1);
                }
                (false, _) => of.add(key, bytes, sign),
            }
        }
        if is_peak {
            of.look();
        }
    }

    /// Returns the sums of a device. A device that appears after the moment had nothing then.
    fn device(&mut self, ordinal: u8) -> &mut DeviceSums {
        let then = self.is_taken.then(Totals::default);
        self.devices.entry(ordinal).or_insert_with(|| DeviceSums {
            then,
            ..DeviceSums::default()
        })
    }

    /// Returns the key of a block. `None` for memory outside of a device, and for memory that is
    /// counted elsewhere.
    fn key(&mut self, block: &Block, begins: bool) -> Option<Key> {
        let is_tensor = match block.class.layer() {
            Layer::Tensor => true,
            Layer::Device => false,
            Layer::Managed | Layer::Host | Layer::Mapping => return None,
        };
        let place = (block.device, block.address);
        // The handle of physical memory is no address.
        let is_captured = block.captured && block.class != Class::Vmm;
        let captured = match (is_tensor, is_captured) {
            (true, _) => self.lies_in_captured(block),
            (false, captured) => {
                if captured && begins {
                    self.captured.insert(place, block.room);
                } else {
                    self.captured.remove(&place);
                }
                captured
            }
        };
        let is_seen = !block.earlier;
        Some(Key {
            is_tensor,
            class: block.class,
            stack: block.stack,
            captured,
            earlier: block.earlier && block.stack == 0,
            thread: if is_tensor { 0 } else { block.thread },
            communicator: (!is_tensor && is_seen)
                .then(|| self.communicators.of(block))
                .flatten(),
        })
    }

    fn lies_in_captured(&self, block: &Block) -> bool {
        let mut before = self.captured.range(..=(block.device, block.address));
        before
            .next_back()
            .is_some_and(|(&(device, address), bytes)| {
                device == block.device && block.address - address < *bytes
            })
    }

    /// Devices that the process uses or has a context on.
    pub fn devices(&self) -> impl Iterator<Item = (u8, &DeviceSums)> {
        let known = self.devices.iter().map(|(device, of)| (*device, of));
        known.filter(|(device, of)| {
            of.is_used || (*device != Event::NO_DEVICE && of.driver.context_made.is_some())
        })
    }
}

impl DeviceSums {
    fn step(&mut self, sum: Sum, step: Step, bytes: u64) {
        let signed = i128::from(bytes);
        match (sum, step) {
            (Sum::Reserved, Step::Rise) => self.now.reserved += signed,
            (Sum::Reserved, Step::Fall) => self.now.reserved -= signed,
            (Sum::Reserved, Step::FallUnseen) => {
                self.now.reserved -= signed;
                self.missing += signed;
            }
            (Sum::Reserved, Step::WasThere) => self.missing += signed,
            (Sum::FrameworkReserved, _) => self.now.framework = Some(bytes),
            _ => return,
        }
        self.is_used |= sum == Sum::Reserved;
    }

    fn add(&mut self, key: Key, bytes: u64, sign: i8) {
        let of = self.keys.entry(key).or_default();
        of.now.add(bytes, sign);
        self.handed_out += i128::from(sign) * i128::from(bytes);
        let nothing = Held::default();
        if (of.now, of.then, of.missing) == (nothing, nothing, nothing) {
            self.keys.remove(&key);
            self.changed.remove(&key);
        } else {
            self.changed.insert(key);
        }
    }

    fn was_there(&mut self, key: Key, bytes: u64) {
        self.keys.entry(key).or_default().missing.add(bytes, 1);
    }

    /// Keeps the current sums if this is the highest moment so far. At the same height with
    /// unchanged sums it updates the figures of the driver and the framework.
    fn look(&mut self) {
        let driver = self.now.driver;
        let held = self.now.reserved + driver.modules + driver.graphs;
        let now = (held, self.handed_out);
        match self.highest {
            Some(highest) if now < highest => {}
            Some(highest) if now == highest => {
                if self.changed.is_empty()
                    && let Some(then) = &mut self.then
                {
                    (then.driver, then.framework) = (driver, self.now.framework);
                }
            }
            _ => {
                self.highest = Some(now);
                self.take();
            }
        }
    }

    /// Makes the current moment the chosen one.
    fn take(&mut self) {
        self.then = Some(self.now);
        let nothing = Held::default();
        for key in self.changed.drain() {
            let Some(of) = self.keys.get_mut(&key) else {
                continue;
            };
            of.then = of.now;
            if (of.now, of.missing) == (nothing, nothing) {
                self.keys.remove(&key);
            }
        }
    }

    /// True if a framework has announced its tensors.
    pub fn has_tensors(&self) -> bool {
        self.now.framework.is_some()
    }

    /// Finds the tensors of one stack with the same live bytes at the moment and at the end. Of
    /// several stacks it takes the one with most bytes. Returns the stack and the bytes.
    pub fn kept_tensors(&self) -> Option<(u32, u64)> {
        let kept = self.keys.iter().filter(|(key, of)| {
            key.is_tensor && key.stack != 0 && of.now == of.then && of.now.bytes > 0
        });
        let most = kept.max_by_key(|(key, of)| (of.now.bytes, key.stack));
        most.and_then(|(key, of)| Some((key.stack, u64::try_from(of.now.bytes).ok()?)))
    }

    /// Returns the totals of the chosen moment, or of the end.
    pub fn totals(&self, at_end: bool) -> Totals {
        let totals = self.then.filter(|_| !at_end).unwrap_or(self.now);
        let driver = self.driver.completed(totals.driver);
        Totals {
            reserved: totals.reserved + self.missing,
            // Memory from before the first event is included in the driver's answer.
            driver: DriverPart {
                rest: driver.rest.map(|rest| rest - self.missing),
                ..driver
            },
            ..totals
        }
    }

    /// Bytes and blocks by key, of the chosen moment or of the end, in no order.
    pub fn held(&self, at_end: bool) -> impl Iterator<Item = (Key, u64, u64)> {
        let is_end = at_end || self.then.is_none();
        self.keys.iter().filter_map(move |(key, of)| {
            let held = if is_end { of.now } else { of.then };
            let bytes = u64::try_from(held.bytes + of.missing.bytes).ok()?;
            let blocks = u64::try_from(held.blocks + of.missing.blocks).ok()?;
            (bytes > 0).then_some((*key, bytes, blocks))
        })
    }
}

/// Device of the first event that names one, among the first events.
fn only_device(recording: &dyn Recording) -> Option<u8> {
    const FIRST: usize = 100_000;
    let mut devices = recording.events().take(FIRST).map(|record| record.event);
    let is_placed = |event: &Event| matches!(event.class.layer(), Layer::Tensor | Layer::Device);
    let first = devices.find(|event| is_placed(event) && event.device != Event::NO_DEVICE);
    first.map(|event| event.device)
}

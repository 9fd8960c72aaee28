//! Sums of the memory of each device, by everything that tells the owner, in one pass over the events: at
//! the moment that is asked about, and at the end.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::communicators::Communicators;
use super::driver::{Driver, DriverPart};
use crate::ledger::{Block, Change, Ledger, Step, Sum};
use crate::recording::Recording;
use gpushim_trace::{Class, Event, Kind, Layer, LiveBlock, Record};

/// The moment that is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// When most of a device was held from the driver, and of these moments when most of it was handed out.
    Peak,
    /// Just before the event of this place.
    Ticket(u64),
    /// The moment after the last event.
    End,
}

/// Marks of a block that tell its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// It is a framework's tensor, which lies in memory that is counted, too.
    pub is_tensor: bool,
    /// The sort of memory it is.
    pub class: Class,
    /// Id of the stack of its allocation.
    pub stack: u32,
    /// It was made while a stream captured, or lies in memory that was.
    pub captured: bool,
    /// It was made before the recording began.
    pub earlier: bool,
    /// The thread that allocated it; 0 for a tensor.
    pub thread: u32,
    /// The communicator of NCCL in whose making it came.
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

/// The sum of a key: now, at the moment that is asked about, and what was there before the first event.
#[derive(Clone, Copy, Debug, Default)]
struct OfKey {
    now: Held,
    then: Held,
    missing: Held,
}

/// The totals of a moment, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// The time, ns since the start.
    pub ns: u64,
    /// Held from the driver by the process, as far as it is seen.
    pub reserved: i128,
    /// Held by the framework, as it says.
    pub framework: Option<u64>,
    /// The memory of the driver itself.
    pub driver: DriverPart,
}

/// The sums of a single device.
#[derive(Debug, Default)]
pub struct DeviceSums {
    keys: FxHashMap<Key, OfKey>,
    /// Keys whose sums differ from those of the moment.
    changed: FxHashSet<Key>,
    now: Totals,
    then: Option<Totals>,
    /// Handed out: the rooms of blocks, and tensors.
    handed_out: i128,
    highest: Option<(i128, i128)>,
    /// Reserved before the first event.
    missing: i128,
    /// The driver's part, followed over the run.
    pub driver: Driver,
    /// The process has blocks or segments there.
    is_used: bool,
}

/// The sums of a recording, by device.
#[derive(Debug)]
pub struct MemorySums {
    when: When,
    is_taken: bool,
    devices: BTreeMap<u8, DeviceSums>,
    /// The communicators of NCCL.
    pub communicators: Communicators,
    /// Memory that was taken while a stream captured, by device and address. If a framework took it, it is
    /// of a pool of graphs.
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

    /// Takes an event in, before what it changes.
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

    /// Takes in what an event changes.
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
            // What was there before the first event counts at every moment, and when it ends no more.
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

    /// Gives the sums of a device. One that comes after the moment had nothing then.
    fn device(&mut self, ordinal: u8) -> &mut DeviceSums {
        let then = self.is_taken.then(Totals::default);
        self.devices.entry(ordinal).or_insert_with(|| DeviceSums {
            then,
            ..DeviceSums::default()
        })
    }

    /// Gives the key of a block; `None` for memory that is not of a device, or counted elsewhere.
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

    /// The devices that the process uses, or that the driver spoke of.
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

    /// Takes the sums, if this is the highest moment so far; or what the driver and the framework
    /// say, if it still is that moment.
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

    /// The moment that is asked about is now.
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

    /// Tells that a framework has announced its tensors.
    pub fn has_tensors(&self) -> bool {
        self.now.framework.is_some()
    }

    /// Finds the tensors of one stack that were live at the moment and still are at the end. Of several
    /// stacks it is the one with most bytes. Returns the stack and the bytes.
    pub fn kept_tensors(&self) -> Option<(u32, u64)> {
        let kept = self.keys.iter().filter(|(key, of)| {
            key.is_tensor && key.stack != 0 && of.now == of.then && of.now.bytes > 0
        });
        let most = kept.max_by_key(|(key, of)| (of.now.bytes, key.stack));
        most.and_then(|(key, of)| Some((key.stack, u64::try_from(of.now.bytes).ok()?)))
    }

    /// Gives the totals of the moment that was asked about, or of the end.
    pub fn totals(&self, at_end: bool) -> Totals {
        let totals = self.then.filter(|_| !at_end).unwrap_or(self.now);
        let driver = self.driver.completed(totals.driver);
        Totals {
            reserved: totals.reserved + self.missing,
            // What was held before the first event was held when the driver was asked.
            driver: DriverPart {
                rest: driver.rest.map(|rest| rest - self.missing),
                ..driver
            },
            ..totals
        }
    }

    /// Bytes and blocks by key, of the moment that was asked about, or of the end; in no order.
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

/// The only device that the first events name.
fn only_device(recording: &dyn Recording) -> Option<u8> {
    const FIRST: usize = 100_000;
    let mut devices = recording.events().take(FIRST).map(|record| record.event);
    let is_placed = |event: &Event| matches!(event.class.layer(), Layer::Tensor | Layer::Device);
    let first = devices.find(|event| is_placed(event) && event.device != Event::NO_DEVICE);
    first.map(|event| event.device)
}

//! The books: what is live, per layer and device, as the events say it.

use rustc_hash::FxHashMap;

use gpushim_trace::{Class, Event, Kind, Layer, Record, flags};

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
    /// Ns and ticket of the peak.
    pub at: Option<(u64, u64)>,
}

impl Level {
    fn add(&mut self, bytes: u64, record: &Record) {
        self.now += i128::from(bytes);
        if self.now > self.peak || self.at.is_none() {
            self.peak = self.now;
            self.at = Some((record.ns, record.ticket));
        }
    }

    /// Was there before the first event, and is after the last.
    fn was_there(&mut self, bytes: u64) {
        self.missing += i128::from(bytes);
    }

    fn subtract(&mut self, bytes: u64, known: bool) {
        self.now -= i128::from(bytes);
        if !known {
            self.missing += i128::from(bytes);
        }
    }

    /// The highest value, bytes.
    pub fn peak(&self) -> u64 {
        to_bytes(self.peak.max(0) + self.missing)
    }

    /// What is known to be there after the last event and no event says was there from the beginning.
    fn end_is_at_least(&mut self, bytes: u64) -> u64 {
        let short = bytes.saturating_sub(self.end());
        self.was_there(short);
        short
    }

    /// The value after the last event, bytes.
    pub fn end(&self) -> u64 {
        to_bytes(self.now + self.missing)
    }
}

fn to_bytes(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

/// One device's books.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Asked for by the program or a framework.
    pub requested: Level,
    /// Handed out, rounded to blocks.
    pub allocated: Level,
    /// Held from the driver, by the pool or directly.
    pub reserved: Level,
    /// Tensors, by their own sizes.
    pub tensors: Level,
    /// What the framework said of itself, with its last words: allocated, reserved.
    pub framework: Option<Framework>,
}

/// What a framework says that it has handed out and holds, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framework {
    /// Highest allocated.
    pub allocated_peak: u64,
    /// Highest reserved.
    pub reserved_peak: u64,
    /// Allocated after the last tensor event.
    pub allocated: u64,
    /// Reserved after the last tensor event.
    pub reserved: u64,
}

/// A live block or tensor.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Bytes asked for.
    pub size: u64,
    /// Device ordinal.
    pub device: u8,
    block: u64,
    class: Class,
    forwarded: bool,
}

/// The books of a process.
#[derive(Debug, Default)]
pub struct Account {
    /// By device ordinal, [`Event::NO_DEVICE`] for what names none; there are a few at most.
    pub devices: Vec<(u8, Device)>,
    live: FxHashMap<(Layer, u64), Live>,
    segments: FxHashMap<u64, (u8, u64)>,
    /// Bytes of destroyed contexts whose blocks could not be told from those of others.
    pub ambiguous: u64,
    /// The device of events that name none.
    only: Option<u8>,
    /// The one device that events named, or that they named several.
    named: Named,
    /// Whether some named none.
    has_unnamed: bool,
}

/// The devices that events named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Named {
    #[default]
    None,
    One(u8),
    Several,
}

impl Device {
    /// So many bytes of a layer are live after the last event. What the events do not account for was there before
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
    /// Books in which events that name no device are of this one.
    pub fn of_only(device: Option<u8>) -> Account {
        Account {
            only: device,
            ..Account::default()
        }
    }

    /// Of which device the events that name none should have been booked, if it was another than they were: the
    /// only one that others name, if there is one.
    pub fn other_only(&self) -> Option<Option<u8>> {
        let only = match self.named {
            Named::One(device) => Some(device),
            Named::None | Named::Several => None,
        };
        (self.has_unnamed && only != self.only).then_some(only)
    }

    /// Takes in a block that is older than the events and outlives them.
    pub fn was_there(&mut self, event: &Event) {
        let (layer, live) = (event.class.layer(), self.made_by(event));
        if self.live.contains_key(&(layer, event.address)) {
            return;
        }
        self.live.insert((layer, event.address), live);
        let device = self.device(live.device);
        match layer {
            Layer::Device => {
                device.requested.was_there(live.size);
                device.allocated.was_there(live.block);
                if live.forwarded {
                    device.reserved.was_there(live.block);
                }
            }
            Layer::Tensor => device.tensors.was_there(live.size),
            Layer::Managed | Layer::Host | Layer::Mapping => {}
        }
    }

    /// Takes one event into the books.
    pub fn feed(&mut self, record: &Record) {
        let event = &record.event;
        match event.kind {
            Kind::Alloc | Kind::TensorAlloc if event.result == 0 => self.allocated(record),
            Kind::Free | Kind::TensorFree if event.result == 0 => self.freed(record),
            Kind::Reserve => {
                let device = self.ordinal(event);
                if let Some((device, bytes)) =
                    self.segments.insert(event.address, (device, event.size))
                {
                    self.device(device).reserved.subtract(bytes, true);
                }
                self.device(device).reserved.add(event.size, record);
            }
            Kind::Release => {
                let known = self.segments.remove(&event.address);
                let (device, bytes) = known.unwrap_or((self.ordinal(event), event.size));
                self.device(device)
                    .reserved
                    .subtract(bytes, known.is_some());
            }
            Kind::ContextGone => self.context_gone(event),
            _ => {}
        }
        if matches!(event.kind, Kind::TensorAlloc | Kind::TensorFree) {
            let [allocated, reserved] = event.extra;
            let ordinal = self.ordinal(event);
            let framework = self.device(ordinal).framework.get_or_insert_default();
            framework.allocated_peak = framework.allocated_peak.max(allocated);
            framework.reserved_peak = framework.reserved_peak.max(reserved);
            (framework.allocated, framework.reserved) = (allocated, reserved);
        }
    }

    /// What is live now.
    pub fn live(&self) -> impl Iterator<Item = (Layer, &Live)> {
        self.live.iter().map(|((layer, _), live)| (*layer, live))
    }

    /// Blocks and bytes of a class that are live now.
    pub fn live_of(&self, class: Class) -> (u64, u64) {
        let of_class = self.live.values().filter(|live| live.class == class);
        of_class.fold((0, 0), |(count, bytes), live| {
            (count + 1, live.size.saturating_add(bytes))
        })
    }

    /// The books of a device.
    fn device(&mut self, ordinal: u8) -> &mut Device {
        let known = self.devices.iter().position(|(of, _)| *of == ordinal);
        let at = known.unwrap_or_else(|| {
            self.devices.push((ordinal, Device::default()));
            self.devices.len() - 1
        });
        &mut self.devices[at].1
    }

    fn made_by(&mut self, event: &Event) -> Live {
        let layer = event.class.layer();
        Live {
            size: event.size,
            device: match layer {
                Layer::Tensor | Layer::Device => self.ordinal(event),
                Layer::Managed | Layer::Host | Layer::Mapping => event.device,
            },
            // The words of a tensor's event are the framework's, not a cost.
            block: if layer == Layer::Tensor {
                event.size
            } else {
                event.cost().block.max(event.size)
            },
            class: event.class,
            forwarded: event.flags & flags::FORWARDED != 0,
        }
    }

    fn allocated(&mut self, record: &Record) {
        let event = &record.event;
        let layer = event.class.layer();
        let live = self.made_by(event);
        // An address handed out twice was freed in between, by an event that is lost.
        if let Some(before) = self.live.insert((layer, event.address), live) {
            self.subtract(layer, before, true);
        }
        match layer {
            Layer::Device => {
                let device = self.device(live.device);
                device.requested.add(live.size, record);
                device.allocated.add(live.block, record);
                if live.forwarded {
                    device.reserved.add(live.block, record);
                }
            }
            Layer::Tensor => self.device(live.device).tensors.add(live.size, record),
            Layer::Managed | Layer::Host | Layer::Mapping => {}
        }
    }

    fn freed(&mut self, record: &Record) {
        let event = &record.event;
        let layer = event.class.layer();
        let known = self.live.remove(&(layer, event.address));
        let live = match known {
            Some(live) => live,
            None => self.made_by(event),
        };
        self.subtract(layer, live, known.is_some());
    }

    fn subtract(&mut self, layer: Layer, live: Live, known: bool) {
        match layer {
            Layer::Device => {
                let device = self.device(live.device);
                device.requested.subtract(live.size, known);
                device.allocated.subtract(live.block, known);
                if live.forwarded {
                    device.reserved.subtract(live.block, known);
                }
            }
            Layer::Tensor => self.device(live.device).tensors.subtract(live.size, known),
            Layer::Managed | Layer::Host | Layer::Mapping => {}
        }
    }

    /// A context's memory is gone without a free. Events of blocks do not name their context: if
    /// the device has no more than what the context had, all of it goes; otherwise only the sums.
    fn context_gone(&mut self, event: &Event) {
        let ordinal = self.ordinal(event);
        if ordinal == Event::NO_DEVICE && event.size > 0 {
            self.device(ordinal);
            self.ambiguous = self.ambiguous.saturating_add(event.size);
            return;
        }
        let pooled = |(layer, live): (Layer, &Live)| {
            (layer == Layer::Device && live.device == ordinal && !live.forwarded)
                .then_some(live.block)
        };
        let of_pool: u64 = self.live().filter_map(pooled).fold(0, u64::saturating_add);
        if of_pool > event.size {
            let device = self.device(ordinal);
            device.requested.subtract(event.size, true);
            device.allocated.subtract(event.size, true);
            device.reserved.subtract(event.extra[0], true);
            self.ambiguous = self.ambiguous.saturating_add(event.size);
            return;
        }
        self.live
            .retain(|(layer, _), live| *layer != Layer::Device || live.device != ordinal);
        self.segments.retain(|_, (device, _)| *device != ordinal);
        let device = self.device(ordinal);
        for level in [
            &mut device.requested,
            &mut device.allocated,
            &mut device.reserved,
        ] {
            level.now = -level.missing;
        }
    }

    /// The books that a device's blocks are in.
    pub fn ordinal_of(&self, device: u8) -> u8 {
        match self.only {
            Some(only) if device == Event::NO_DEVICE => only,
            _ => device,
        }
    }

    /// The device that an event is about: the one it names, or else the only one there is.
    fn ordinal(&mut self, event: &Event) -> u8 {
        if event.device == Event::NO_DEVICE {
            self.has_unnamed = true;
            return self.ordinal_of(event.device);
        }
        self.named = match self.named {
            Named::None => Named::One(event.device),
            Named::One(one) if one != event.device => Named::Several,
            named => named,
        };
        event.device
    }
}

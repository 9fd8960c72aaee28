//! The ledger itself: blocks and segments, and what each event changes.

use rustc_hash::FxHashMap;

use super::block::{Block, Focus, Segment, is_on};
use super::change::Change;
use gpushim_trace::{Effect, Event, Kind, Layer, LiveBlock, Record};

/// Number of layers, whose numbers are the index.
const LAYERS: usize = 5;

/// Live blocks and reserved segments, updated by each event.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Only blocks of this layer, and of this device if it names one; all blocks if `None`.
    focus: Option<Focus>,
    /// The device of events that name none.
    only: Option<u8>,
    named: Named,
    has_unnamed: bool,
    /// Live blocks by layer and address.
    pub(super) blocks: [FxHashMap<u64, Block>; LAYERS],
    /// Reserved segments by address.
    pub(super) segments: FxHashMap<u64, Segment>,
}

/// The devices that events named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Named {
    #[default]
    None,
    One(u8),
    Several,
}

impl Ledger {
    /// Creates a ledger of all memory. Events that name no device are assigned to `only`.
    pub fn new(only: Option<u8>) -> Ledger {
        Ledger {
            only,
            ..Ledger::default()
        }
    }

    /// Creates a ledger of the examined memory alone.
    pub fn of(focus: Focus) -> Ledger {
        Ledger {
            focus: Some(focus),
            ..Ledger::default()
        }
    }

    /// Adds the blocks that were allocated before the first readable event and live at the end.
    /// Must be called before any event.
    pub fn begin(&mut self, older: &[LiveBlock], say: &mut (impl FnMut(&Change) + ?Sized)) {
        for one in older {
            if self.focus.is_some_and(|focus| !focus.holds(&one.event)) {
                continue;
            }
            let block = Block {
                earlier: true,
                ..self.block(one.ns, 0, &one.event)
            };
            let of_layer = self.of_layer(block.class.layer());
            if of_layer.insert(block.address, block).is_none() {
                say(&Change::WasThere(block));
            }
        }
    }

    /// Applies an event and calls `say` with the changes: ends before beginnings.
    pub fn apply(&mut self, record: &Record, say: &mut (impl FnMut(&Change) + ?Sized)) {
        let event = &record.event;
        match Effect::of(event) {
            Effect::None => {}
            Effect::Allocated(bytes) if self.follows(bytes.layer) => {
                // An address with two allocations was freed in between, by an event that is lost.
                // This holds also if another device has it now.
                let is_ours = self.focus.is_none_or(|focus| focus.holds(event));
                let block = is_ours.then(|| self.block(record.ns, record.ticket, event));
                let of_layer = self.of_layer(bytes.layer);
                let before = match block {
                    Some(block) => of_layer.insert(event.address, block),
                    None => of_layer.remove(&event.address),
                };
                if let Some(before) = before {
                    say(&Change::Freed(before));
                }
                if let Some(block) = block {
                    say(&Change::Allocated(block));
                }
            }
            Effect::Allocated(_) => {}
            Effect::Freed(bytes) if self.follows(bytes.layer) => {
                match self.of_layer(bytes.layer).remove(&event.address) {
                    Some(block) => say(&Change::Freed(block)),
                    None if self.focus.is_none_or(|focus| focus.holds(event)) => {
                        let block = self.block(0, 0, event);
                        say(&Change::FreedUnseen(Block {
                            stack: 0,
                            earlier: true,
                            ..block
                        }));
                    }
                    None => {}
                }
            }
            Effect::Freed(_) => {}
            Effect::Reserved(_) => {
                if self.has_segments(event) {
                    let device = self.ordinal(event);
                    let segment = Segment::new(record, device);
                    if let Some(before) = self.segments.insert(event.address, segment) {
                        say(&Change::Released(before));
                    }
                    say(&Change::Reserved(segment));
                }
            }
            Effect::Released(_) => match self.segments.remove(&event.address) {
                Some(segment) => say(&Change::Released(segment)),
                None if self.has_segments(event) => {
                    let device = self.ordinal(event);
                    say(&Change::ReleasedUnseen(Segment::new(record, device)));
                }
                None => {}
            },
            Effect::ContextGone {
                allocated,
                reserved,
            } => {
                if self.follows(Layer::Device) && (allocated > 0 || reserved > 0) {
                    let device = self.ordinal(event);
                    self.context_gone(event.address, device, (allocated, reserved), say);
                }
            }
            Effect::InUse(bytes) => {
                if self.focus.is_none() {
                    let device = self.ordinal(event);
                    say(&Change::InUse { device, bytes });
                }
            }
        }
        if self.focus.is_none()
            && let Some([allocated, reserved]) = event.framework()
        {
            let device = self.ordinal(event);
            say(&Change::Framework {
                device,
                allocated,
                reserved,
            });
        }
    }

    fn follows(&self, layer: Layer) -> bool {
        self.focus.is_none_or(|focus| focus.layer == layer)
    }

    /// Returns true if segments are followed, and the event's device is examined.
    fn has_segments(&self, event: &Event) -> bool {
        self.focus
            .is_none_or(|focus| focus.layer == Layer::Device && is_on(focus.device, event.device))
    }

    fn block(&mut self, ns: u64, ticket: u64, event: &Event) -> Block {
        let device = match event.class.layer() {
            Layer::Tensor | Layer::Device => self.ordinal(event),
            Layer::Managed | Layer::Host | Layer::Mapping => event.device,
        };
        Block {
            device,
            ..Block::new(ns, ticket, event)
        }
    }

    fn of_layer(&mut self, layer: Layer) -> &mut FxHashMap<u64, Block> {
        &mut self.blocks[layer as usize]
    }

    /// Returns the live blocks of a layer, by address.
    pub fn live(&self, layer: Layer) -> &FxHashMap<u64, Block> {
        &self.blocks[layer as usize]
    }

    /// Returns the live blocks of all layers.
    pub fn all_live(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().flat_map(FxHashMap::values)
    }

    /// Returns the device of a block or event: the one it names, or else the only one there is.
    pub fn ordinal_of(&self, device: u8) -> u8 {
        match self.only {
            Some(only) if device == Event::NO_DEVICE => only,
            _ => device,
        }
    }

    /// Returns the device that events without one should have been assigned to, if it is not
    /// `only`. It is the only device that other events name, or none.
    pub fn other_only(&self) -> Option<Option<u8>> {
        let only = match self.named {
            Named::One(device) => Some(device),
            Named::None | Named::Several => None,
        };
        (self.has_unnamed && only != self.only).then_some(only)
    }

    fn ordinal(&mut self, event: &Event) -> u8 {
        // The driver's figure may be about a device that the process does not use.
        if event.kind == Kind::DeviceMemory {
            return event.device;
        }
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

//! A pass over the events of a recording that finds the owners of its blocks.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::super::Recording;
use super::{Block, Number, Owner, Owners, Told};
use gpushim_trace::{Effect, Event, Kept, Kind, Layer, Occasion, OwnerWords, Record, walk};

/// A block that is live while the events are read.
#[derive(Clone, Copy, Debug)]
struct Live {
    ticket: u64,
    /// Time of the allocation, ns since the start.
    ns: u64,
    size: u64,
    stack: u32,
}

/// The state after some of the events.
pub(super) struct Pass<'a> {
    recording: &'a dyn Recording,
    pub(super) owners: Owners,
    numbers: FxHashMap<(u32, u32, Kept), Number>,
    by_owner: FxHashMap<Owner, Number>,
    live: FxHashMap<(Layer, u64), Live>,
    /// Numbers of the ways of stacks.
    ways: FxHashMap<u32, u64>,
    /// Blocks that the current walk named.
    told: Vec<(Block, Told)>,
    /// The place of the last walk among all events.
    last_walk: u64,
}

impl<'a> Pass<'a> {
    pub(super) fn new(recording: &'a dyn Recording) -> Pass<'a> {
        let (older, _) = recording.older();
        let live = older.into_iter().map(|block| {
            let event = &block.event;
            let live = Live {
                ticket: 0,
                ns: block.ns,
                size: event.size,
                stack: event.stack,
            };
            ((event.class.layer(), event.address), live)
        });
        Pass {
            recording,
            owners: Owners::default(),
            numbers: FxHashMap::default(),
            by_owner: FxHashMap::default(),
            live: live.collect(),
            ways: FxHashMap::default(),
            told: Vec::new(),
            last_walk: 0,
        }
    }

    pub(super) fn event(&mut self, record: &Record) {
        let (ticket, event) = (record.ticket, &record.event);
        match event.kind {
            Kind::Owner => self.owner(event),
            Kind::OwnersWalk => {
                self.owners.walks += 1;
                self.owners.walks_ns = self.owners.walks_ns.saturating_add(event.extra[0]);
                let occasion = Occasion::from_number(event.address);
                let begun = record.ns.saturating_sub(event.extra[0]);
                self.walk_ended(ticket, begun, occasion, event.extra[1]);
            }
            _ => match Effect::of(event) {
                Effect::Allocated(bytes) => {
                    let live = Live {
                        ticket,
                        ns: record.ns,
                        size: event.size,
                        stack: event.stack,
                    };
                    self.live.insert((bytes.layer, event.address), live);
                }
                Effect::Freed(bytes) => {
                    let address = event.address;
                    if let Some(live) = self.live.remove(&(bytes.layer, address)) {
                        let block = (bytes.layer, address, live.ticket);
                        if let Some(told) = self.owners.of_block.get_mut(&block) {
                            told.freed = Some(ticket);
                        }
                    }
                }
                _ => {}
            },
        }
    }

    fn owner(&mut self, event: &Event) {
        let words = OwnerWords::unpack(event.extra);
        let number = self.number(words);
        let exact = (event.class.layer(), event.address);
        let found = match self.live.get(&exact) {
            Some(live) => Some((exact, *live)),
            None if words.kept == Kept::Announced => self.around(event.address),
            None => None,
        };
        let Some(((layer, address), live)) = found else {
            return;
        };
        let block = (layer, address, live.ticket);
        let told = Told {
            owner: Some(number),
            ..self.looked_for(&live)
        };
        match words.kept {
            // It stays, independent of later walks.
            Kept::Announced => drop(self.owners.of_block.insert(block, told)),
            _ => self.told.push((block, told)),
        }
    }

    /// Makes the entry of a block that no walk has found.
    fn looked_for(&mut self, live: &Live) -> Told {
        let way = match live.stack {
            0 => 0,
            stack => {
                let known = self.ways.entry(stack);
                *known.or_insert_with(|| self.recording.way(stack).number())
            }
        };
        Told {
            owner: None,
            size: live.size,
            way,
            freed: None,
            was_missing: false,
            is_thorough: false,
            at_end: false,
        }
    }

    /// Returns the block that contains an address: a tensor, if there is one.
    fn around(&self, address: u64) -> Option<((Layer, u64), Live)> {
        let holds = |(key, live): &(&(Layer, u64), &Live)| {
            address
                .checked_sub(key.1)
                .is_some_and(|offset| offset < live.size)
        };
        let found = self
            .live
            .iter()
            .filter(holds)
            .min_by_key(|(key, _)| key.0 as u8);
        found.map(|(key, live)| (*key, *live))
    }

    fn number(&mut self, words: OwnerWords) -> Number {
        let key = (words.path, words.root, words.kept);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let text = |id: u32| match id {
            0 => String::new(),
            id => self.recording.text(id.into()).unwrap_or_default(),
        };
        // The line in a running function differs from walk to walk.
        let root = text(words.root);
        let root = match root.rsplit_once(':') {
            Some((function, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => function,
            _ => &root,
        };
        let owner = Owner {
            kept: words.kept,
            path: text(words.path),
            root: root.to_string(),
        };
        let next = self.owners.table.len() as Number;
        let number = *self.by_owner.entry(owner.clone()).or_insert(next);
        if number == next {
            self.owners.table.push(owner);
        }
        self.numbers.insert(key, number);
        number
    }

    /// Returns true if the owner of a block is kept in this way.
    fn is_kept(&self, told: &Told, kept: Kept) -> bool {
        let owner = told
            .owner
            .and_then(|owner| self.owners.table.get(owner as usize));
        owner.is_some_and(|owner| owner.kept == kept)
    }

    /// Takes over the owners that a walk found, in place of earlier ones; the walk began at
    /// `begun`, ns. A walk at the end of the interpreter only adds owners: the functions that kept
    /// the blocks have returned.
    pub(super) fn walk_ended(&mut self, ticket: u64, begun: u64, occasion: Occasion, flags: u64) {
        let has = |flag: u64| flags & flag != 0;
        let at_end = occasion == Occasion::End;
        let mut told: FxHashMap<Block, Told> = self.told.drain(..).collect();
        told.retain(|block, _| {
            let known = self.owners.of_block.get(block);
            !known.is_some_and(|known| self.is_kept(known, Kept::Announced))
        });
        // Graphs whose nodes are all younger than the walk before keep few of the older blocks:
        // inputs.
        if has(walk::NEW_GRAPHS) {
            let last_walk = self.last_walk;
            told.retain(|block, told| block.2 >= last_walk || !self.is_kept(told, Kept::Graph));
        }
        if !has(walk::STOPPED) && !at_end {
            let layers = self.live.keys().map(|(layer, _)| *layer);
            let layer = layers.min_by_key(|layer| *layer as u8);
            let missing = self.live.iter().filter_map(|((of, address), live)| {
                let block = (*of, *address, live.ticket);
                let was_there = layer == Some(*of) && live.ns <= begun;
                (was_there && !told.contains_key(&block)).then_some((block, *live))
            });
            for (block, live) in missing.collect::<Vec<_>>() {
                let unfound = self.looked_for(&live);
                let mut of = *self.owners.of_block.entry(block).or_insert(unfound);
                // A walk that sees less cannot contradict a thorough one.
                let is_settled = of.owner.is_some() && of.is_thorough && !has(walk::THOROUGH);
                if is_settled || self.is_kept(&of, Kept::Announced) {
                    continue;
                }
                of.was_missing = true;
                if has(walk::NEW_GRAPHS) && self.is_kept(&of, Kept::Graph) {
                    of.owner = None;
                }
                self.owners.of_block.insert(block, of);
            }
        }
        for (block, mut told) in told {
            let (layer, address, made) = block;
            let is_live = |live: &Live| live.ticket == made;
            if !self.live.get(&(layer, address)).is_some_and(is_live) {
                told.freed = Some(ticket);
            }
            told.at_end = at_end;
            told.is_thorough = has(walk::THOROUGH);
            match self.owners.of_block.entry(block) {
                Entry::Occupied(earlier) if at_end && earlier.get().was_missing => {
                    let was_missing = true;
                    *earlier.into_mut() = Told {
                        was_missing,
                        ..told
                    };
                }
                Entry::Occupied(_) if at_end => {}
                entry => drop(entry.insert_entry(told)),
            }
        }
        self.last_walk = ticket;
    }
}

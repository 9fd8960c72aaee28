//! Who keeps each block, as walks over the program's objects and announcements of libraries say it.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Recording;
use gpushim_trace::{Effect, Event, Kept, Kind, Layer, Occasion, OwnerWords};

/// The fact of a recording that has owners.
pub const RECORDED: &str = "owners";

/// One way in which blocks are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Owner {
    /// The way: `named`, `parameter`, `buffer`, `gradient`, `optimizer-state`, `graph`,
    /// `unreachable`, `native` or `announced`.
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub kept: Kept,
    /// The path by which the program reaches them; empty without one.
    pub path: String,
    /// The beginning of the path: a function with its file, or a module.
    pub root: String,
}

fn by_name<S: serde::Serializer>(kept: &Kept, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kept.name())
}

impl Owner {
    /// The owner in words, after "kept by".
    pub fn in_words(&self) -> String {
        let path = format!("`{}`", self.path);
        match self.kept {
            Kept::Graph if self.path.is_empty() => "autograd graphs".to_string(),
            Kept::Graph => format!("the autograd graph of {}", self.rooted(&path)),
            Kept::Unreachable => {
                "unreachable objects, which wait for the garbage collector".to_string()
            }
            Kept::Native => "C++, and no Python object".to_string(),
            Kept::Announced => self.path.clone(),
            _ => self.rooted(&path),
        }
    }

    fn rooted(&self, path: &str) -> String {
        match self.root.as_str() {
            "" => path.to_string(),
            "module __main__" => format!("{path} of the program's module"),
            root if root.starts_with("module ") => format!("{path} of {root}"),
            root => format!("{path} of `{root}`"),
        }
    }
}

/// The part of some blocks that one owner keeps.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Owned {
    /// The owner, in the words of the walk.
    #[serde(flatten)]
    pub owner: Owner,
    /// The number of its blocks.
    pub blocks: u64,
    /// Bytes that the program asked for in these blocks.
    pub bytes: u64,
}

/// The number of an owner in the table.
type Number = u32;

/// Blocks and bytes by owner.
type ByOwner = FxHashMap<Number, (u64, u64)>;

/// A block that has an owner.
#[derive(Clone, Copy, Debug)]
struct Told {
    owner: Number,
    size: u64,
    /// The number of its stack's frames.
    frames: u64,
    /// The place of its free among all events.
    freed: Option<u64>,
}

/// A block: its layer, its address, and the place of its allocation among all events. The place is 0
/// if it cannot be read.
type Block = (Layer, u64, u64);

/// The owners of a recording's blocks.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    table: Vec<Owner>,
    of_block: FxHashMap<Block, Told>,
    of_frames: FxHashMap<u64, ByOwner>,
    /// The number of walks over the program's objects.
    pub walks: u64,
    /// Ns that all walks took together.
    pub walks_ns: u64,
}

impl Owners {
    /// Reads the owners of a recording.
    pub fn of(recording: &dyn Recording) -> Owners {
        if recording.fact(RECORDED).is_none() {
            return Owners::default();
        }
        let mut pass = Pass::new(recording);
        let mut last = 0;
        for record in recording.events() {
            last = record.ticket;
            pass.event(record.ticket, &record.event);
        }
        pass.walk_ended(last, false);
        pass.owners.sum_up(last);
        pass.owners
    }

    /// Returns true if no block has an owner.
    pub fn is_empty(&self) -> bool {
        self.of_block.is_empty()
    }

    /// The owner of a block, as it was told last.
    pub fn of_block(&self, layer: Layer, address: u64, ticket: u64) -> Option<&Owner> {
        let told = self.of_block.get(&(layer, address, ticket))?;
        self.table.get(told.owner as usize)
    }

    /// Sums up the owners of blocks by the frames of their stacks. Of the blocks of a stack those count
    /// that lived at least half as long as the longest: what is kept outlives what is in use.
    fn sum_up(&mut self, last: u64) {
        let life =
            |(block, told): (&Block, &Told)| told.freed.unwrap_or(last).saturating_sub(block.2);
        let mut longest = FxHashMap::<u64, u64>::default();
        for one in &self.of_block {
            let of = longest.entry(one.1.frames).or_default();
            *of = (*of).max(life(one));
        }
        for one in &self.of_block {
            let (_, told) = one;
            let longest = longest.get(&told.frames).copied().unwrap_or(0);
            if life(one) >= longest / 2 {
                let of = self.of_frames.entry(told.frames).or_default();
                let (blocks, bytes) = of.entry(told.owner).or_default();
                *blocks += 1;
                *bytes = bytes.saturating_add(told.size);
            }
        }
    }

    /// Returns the owners of the blocks with a stack's frames that lived longest, those with most bytes
    /// first.
    pub fn of_stack(&self, recording: &dyn Recording, stack: u32) -> Vec<Owned> {
        let of = match stack {
            0 => None,
            stack => self.of_frames.get(&recording.frames(stack)),
        };
        let by_owner = of.into_iter().flatten();
        let mut owned: Vec<Owned> = by_owner
            .filter_map(|(number, (blocks, bytes))| {
                Some(Owned {
                    owner: self.table.get(*number as usize)?.clone(),
                    blocks: *blocks,
                    bytes: *bytes,
                })
            })
            .collect();
        owned.sort_by(|a, b| {
            (Reverse(a.bytes), &a.owner.path).cmp(&(Reverse(b.bytes), &b.owner.path))
        });
        owned
    }
}

/// A block that is live while the events are read.
#[derive(Clone, Copy, Debug)]
struct Live {
    ticket: u64,
    size: u64,
    stack: u32,
}

struct Pass<'a> {
    recording: &'a dyn Recording,
    owners: Owners,
    numbers: FxHashMap<(u32, u32, Kept), Number>,
    by_owner: FxHashMap<Owner, Number>,
    live: FxHashMap<(Layer, u64), Live>,
    /// Blocks that the walk named which is being read.
    told: Vec<(Block, Told)>,
}

impl<'a> Pass<'a> {
    fn new(recording: &'a dyn Recording) -> Pass<'a> {
        let older = recording.live().unwrap_or_default().into_iter();
        let live = older.map(|block| {
            let event = &block.event;
            let live = Live {
                ticket: 0,
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
            told: Vec::new(),
        }
    }

    fn event(&mut self, ticket: u64, event: &Event) {
        match event.kind {
            Kind::Owner => self.owner(event),
            Kind::OwnersWalk => {
                self.owners.walks += 1;
                self.owners.walks_ns = self.owners.walks_ns.saturating_add(event.extra[0]);
                self.walk_ended(
                    ticket,
                    Occasion::from_number(event.address) == Occasion::End,
                );
            }
            _ => match Effect::of(event) {
                Effect::Allocated(bytes) => {
                    let live = Live {
                        ticket,
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
        let frames = match live.stack {
            0 => 0,
            stack => self.recording.frames(stack),
        };
        let told = Told {
            owner: number,
            size: live.size,
            frames,
            freed: None,
        };
        self.told.push((block, told));
    }

    /// The block that contains an address: a tensor, if there is one.
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
        // The line in which a function was differs from walk to walk.
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

    /// Takes over what a walk said, in place of earlier ones. One at the end of the interpreter only
    /// adds: by then, the functions that kept the blocks have returned.
    fn walk_ended(&mut self, ticket: u64, at_end: bool) {
        for (block, mut told) in self.told.drain(..) {
            let (layer, address, made) = block;
            let is_live = |live: &Live| live.ticket == made;
            if !self.live.get(&(layer, address)).is_some_and(is_live) {
                told.freed = Some(ticket);
            }
            match at_end {
                true => drop(self.owners.of_block.entry(block).or_insert(told)),
                false => drop(self.owners.of_block.insert(block, told)),
            }
        }
    }
}

#[cfg(test)]
mod tests;

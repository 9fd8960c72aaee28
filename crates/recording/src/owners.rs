//! The owner of each block, from walks over the program's objects and announcements of libraries.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Recording;
use gpushim_trace::{Kept, Layer, Occasion, walk};

mod pass;

use pass::Pass;

/// One way in which blocks are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Owner {
    /// The way: `named`, `parameter`, `buffer`, `gradient`, `optimizer-state`, `graph`,
    /// `unreachable`, `native` or `announced`.
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
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
    /// Returns the owner in words, after "kept by".
    pub fn in_words(&self) -> String {
        match self.kept {
            Kept::Graph if self.path.is_empty() => "autograd graphs".to_string(),
            Kept::Graph => format!("the autograd graph of {}", self.place()),
            Kept::Unreachable => {
                "unreachable objects, which wait for the garbage collector".to_string()
            }
            Kept::Native => "C++, and no Python object".to_string(),
            Kept::Announced => self.path.clone(),
            _ => self.place(),
        }
    }

    /// Returns the path with its beginning, in words.
    pub fn place(&self) -> String {
        let path = format!("`{}`", self.path);
        match self.root.as_str() {
            "" => path,
            "module __main__" => format!("{path} of the program's module"),
            root if root.starts_with("module ") => format!("{path} of {root}"),
            root => format!("{path} of `{root}`"),
        }
    }
}

/// The part of some blocks that one owner keeps.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// A block that a walk looked for.
#[derive(Clone, Copy, Debug)]
struct Told {
    owner: Option<Number>,
    size: u64,
    /// The number of its stack's way.
    way: u64,
    /// The place of its free among all events.
    freed: Option<u64>,
    /// True if the last walk before the end did not find the owner, though it was complete.
    was_missing: bool,
    /// True if the walk that found the owner was thorough.
    is_thorough: bool,
    /// True if only the walk at the end found the owner: the functions that kept the block have
    /// returned.
    at_end: bool,
}

/// A block: its layer, its address, and the place of its allocation among all events. The place is
/// 0 if it cannot be read.
type Block = (Layer, u64, u64);

/// The owners of a recording's blocks.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    table: Vec<Owner>,
    of_block: FxHashMap<Block, Told>,
    of_way: FxHashMap<u64, ByOwner>,
    /// The number of walks over the program's objects.
    pub walks: u64,
    /// Time of all walks together, ns.
    pub walks_ns: u64,
}

impl Owners {
    /// Reads the owners of a recording.
    pub fn of(recording: &dyn Recording) -> Owners {
        if !recording.process().has_owners {
            return Owners::default();
        }
        let mut pass = Pass::new(recording);
        let mut last = 0;
        for record in recording.events() {
            last = record.ticket;
            pass.event(&record);
        }
        pass.walk_ended(last, 0, Occasion::High, walk::STOPPED);
        pass.owners.sum_up(last);
        pass.owners
    }

    /// Returns true if no block has an owner.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the owner of a block, from the last report on it.
    pub fn of_block(&self, layer: Layer, address: u64, ticket: u64) -> Option<&Owner> {
        let told = self.of_block.get(&(layer, address, ticket))?;
        self.table.get(told.owner? as usize)
    }

    /// Sums up the owners of blocks by the ways of their stacks. Only blocks of a way that lived at
    /// least half as long as the longest count: kept blocks outlive used ones.
    ///
    /// Owners that walks during the run found count if they found the owners of most bytes.
    /// Otherwise the owners that the walk at the end found count.
    fn sum_up(&mut self, last: u64) {
        let life =
            |(block, told): (&Block, &Told)| told.freed.unwrap_or(last).saturating_sub(block.2);
        let mut longest = FxHashMap::<u64, u64>::default();
        for one in &self.of_block {
            let of = longest.entry(one.1.way).or_default();
            *of = (*of).max(life(one));
        }
        let is_kept = |one: &(&Block, &Told)| {
            let longest = longest.get(&one.1.way).copied().unwrap_or(0);
            life(*one) >= longest / 2
        };
        let kept = || self.of_block.iter().filter(is_kept).map(|(_, told)| told);
        let mut balances = FxHashMap::<u64, i128>::default();
        for told in kept() {
            let bytes = i128::from(told.size);
            let is_found = told.owner.is_some() && !told.at_end;
            *balances.entry(told.way).or_default() += match told.was_missing {
                true => -bytes,
                false if is_found => bytes,
                false => 0,
            };
        }
        for told in kept() {
            let at_end = balances.get(&told.way).is_some_and(|balance| *balance <= 0);
            if let Some(owner) = told.owner.filter(|_| told.at_end == at_end) {
                let of = self.of_way.entry(told.way).or_default();
                let (blocks, bytes) = of.entry(owner).or_default();
                *blocks += 1;
                *bytes = bytes.saturating_add(told.size);
            }
        }
    }

    /// Returns the owners of the longest-lived blocks with a stack's way, the ones with most bytes
    /// first. Operators of one line have one way.
    pub fn of_stack(&self, recording: &dyn Recording, stack: u32) -> Vec<Owned> {
        let of = match stack {
            0 => None,
            stack => self.of_way.get(&recording.way(stack).number()),
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

#[cfg(test)]
mod tests;

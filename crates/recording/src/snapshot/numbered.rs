//! Values that many entries refer to, each kept once.

use std::collections::HashMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Values that are numbered in the order of their first occurrences.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    all: Vec<T>,
    known: FxHashMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered {
            all: Vec::new(),
            known: HashMap::default(),
        }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    /// Returns the number of a value, from 1 upwards.
    pub(super) fn number(&mut self, thing: T) -> u32 {
        let next = u32::try_from(self.all.len() + 1).unwrap_or(u32::MAX);
        *self.known.entry(thing).or_insert_with_key(|thing| {
            self.all.push(thing.clone());
            next
        })
    }

    /// Returns the value of a number.
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.all.get((number as usize).checked_sub(1)?)
    }
}

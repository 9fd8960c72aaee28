//! Values and texts of a snapshot that many entries refer to, each kept once.

use std::hash::Hash;
use std::sync::Arc;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::pickle::{Pickle, Value};

/// Values that are numbered in the order of their first occurrences, from 1 upwards.
#[derive(Debug)]
pub(super) struct Numbered<T>(IndexSet<T, FxBuildHasher>);

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered(IndexSet::default())
    }
}

impl<T: Eq + Hash> Numbered<T> {
    /// Returns the number of a value.
    pub(super) fn number(&mut self, thing: T) -> u32 {
        let (index, _) = self.0.insert_full(thing);
        u32::try_from(index + 1).unwrap_or(u32::MAX)
    }

    /// Returns the value of a number.
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.0.get_index((number as usize).checked_sub(1)?)
    }
}

/// Texts that are numbered in the order of their first occurrences. A text that many entries refer
/// to is read once, independent of its length and uses.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: Numbered<Arc<str>>,
    /// Numbers by the place in the file, and by the length of the prefix.
    seen: FxHashMap<(usize, usize), u32>,
}

impl Texts {
    /// Returns the number of a text with a prefix, from 1 upwards; `None` for other values.
    pub(super) fn number(
        &mut self,
        pickle: &Pickle<'_>,
        text: Value,
        before: &'static str,
    ) -> Option<u32> {
        let Value::Text { at, .. } = text else {
            return None;
        };
        if let Some(known) = self.seen.get(&(at, before.len())) {
            return Some(*known);
        }
        let text = pickle.text(text)?;
        let whole = match before {
            "" => text,
            before => format!("{before}{text}"),
        };
        let number = self.all.number(whole.into());
        self.seen.insert((at, before.len()), number);
        Some(number)
    }

    /// Returns the text of a number.
    pub(super) fn get(&self, number: u32) -> Option<&str> {
        self.all.get(number).map(|text| &**text)
    }

    /// Drops the data that is needed only while the pickle is read.
    pub(super) fn finish(&mut self) {
        self.seen = FxHashMap::default();
    }
}

//! The texts of a snapshot, each kept once.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::recording::pickle::{Pickle, Value};
use crate::recording::snapshot::numbered::Numbered;

/// Texts that are numbered in the order in which they first came. A text that many refer to is read once: what it
/// costs does not depend on how long it is and how often it is used.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: Numbered<Arc<str>>,
    /// Numbers by the place in the file, and by the length of what was put before it.
    seen: FxHashMap<(usize, usize), u32>,
}

impl Texts {
    /// The number of a text with something before it, from 1 on; `None` for what is no text.
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

    /// The text of a number.
    pub(super) fn get(&self, number: u32) -> Option<&str> {
        self.all.get(number).map(|text| &**text)
    }

    /// Forgets what is needed only while the pickle is there.
    pub(super) fn finish(&mut self) {
        self.seen = FxHashMap::default();
    }
}

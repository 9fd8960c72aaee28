//! Facts about the process, as lines of text.

use std::sync::atomic::Ordering;

use super::{FACTS_AT, Writer};
use crate::layout::facts;
use crate::text::{cut_to, escape_into};

impl Writer {
    /// Adds a fact about the process: a line of text that is complete as soon as this returns.
    ///
    /// The same key may come many times. A value beyond 8 KiB is shortened; a fact that no longer
    /// fits is counted and dropped. Takes a lock and makes copies: not for hot paths.
    pub fn fact(&self, key: &str, value: &str) {
        let line = fact_line(key, value);
        let _held = self.rare.lock();
        let at = FACTS_AT as usize;
        let (Some(committed), Some(cut)) =
            (self.word(at + facts::COMMITTED), self.word(at + facts::CUT))
        else {
            return;
        };
        let used = committed.load(Ordering::Relaxed);
        let free =
            (facts::BYTES - facts::TEXT) as u64 - used.min((facts::BYTES - facts::TEXT) as u64);
        if line.len() as u64 > free {
            cut.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let text = at + facts::TEXT + used as usize;
        if !self.mapped.space.ensure(text, line.len()) {
            cut.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.put(text, line.as_bytes());
        committed.store(used + line.len() as u64, Ordering::Release);
    }
}

/// Returns a fact as it stands in the file.
pub(crate) fn fact_line(key: &str, value: &str) -> String {
    let mut line = String::with_capacity(key.len() + value.len().min(facts::VALUE_MAX) + 8);
    escape_into(&mut line, cut_to(key, 256));
    line.push('\t');
    let short = cut_to(value, facts::VALUE_MAX);
    escape_into(&mut line, short);
    if short.len() < value.len() {
        line.push('…');
    }
    line.push('\n');
    line
}

//! Iterations by the ranges that a program announced.

use rustc_hash::FxHashMap;

use super::{By, LEAST, without_numbers};
use crate::recording::Recording;
use gpushim_trace::Event;

/// Different names that are told apart; those that come after so many others are left out.
const NAMES: usize = 1 << 16;

/// Ranges by their names without numbers.
#[derive(Debug, Default)]
pub struct Ranges {
    names: FxHashMap<u64, String>,
    depths: FxHashMap<u32, u32>,
    /// How often, at which least depth, and after how many others it first began.
    seen: FxHashMap<String, (u64, u32, usize)>,
    repeat: bool,
}

impl Ranges {
    /// A range began.
    pub fn push(&mut self, recording: &dyn Recording, event: &Event) {
        let depth = self.depths.entry(event.thread).or_default();
        *depth += 1;
        let name = self
            .names
            .entry(event.address)
            .or_insert_with(|| without_numbers(&recording.text(event.address).unwrap_or_default()));
        let order = self.seen.len();
        if order < NAMES {
            let seen = self.seen.entry(name.clone()).or_insert((0, *depth, order));
            seen.0 += 1;
            seen.1 = seen.1.min(*depth);
            self.repeat |= seen.0 >= LEAST;
        }
    }

    /// Whether some come often enough to be chosen.
    pub fn repeat(&self) -> bool {
        self.repeat
    }

    /// The innermost ended.
    pub fn pop(&mut self, event: &Event) {
        let depth = self.depths.entry(event.thread).or_default();
        *depth = depth.saturating_sub(1);
    }

    /// A range whose name says that it is an iteration, or else the outermost that repeats; of several the
    /// one that came first.
    pub fn choose(&self) -> Option<By> {
        let says = |name: &str| {
            let name = name.to_ascii_lowercase();
            ["step", "iter", "batch"]
                .iter()
                .any(|word| name.contains(word))
        };
        let often = self.seen.iter().filter(|(_, (count, ..))| *count >= LEAST);
        let (name, _) =
            often.min_by_key(|(name, (_, depth, order))| (!says(name), *depth, *order))?;
        Some(By::Range(name.clone()))
    }
}

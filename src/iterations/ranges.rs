//! Iterations by the ranges that a program announced.

use rustc_hash::FxHashMap;

use super::{By, LEAST, without_numbers};
use crate::recording::Recording;
use gpushim_trace::Event;

/// The most different names; later ones are left out.
const NAMES: usize = 1 << 16;

/// The names of ranges by their ids.
#[derive(Debug, Default)]
pub struct RangeNames(FxHashMap<u64, String>);

impl RangeNames {
    /// The name of an id; empty if the recording does not have it.
    pub fn of(&mut self, recording: &dyn Recording, id: u64) -> &str {
        let name = self.0.entry(id);
        name.or_insert_with(|| recording.text(id).unwrap_or_default())
    }
}

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
        let depth = *depth;
        let name = self.name(recording, event);
        self.count(name, depth);
    }

    /// A range began that may end on another thread. It may overlap with others, so that it is no iteration unless its
    /// name says so.
    pub fn start(&mut self, recording: &dyn Recording, event: &Event) {
        let name = self.name(recording, event);
        if says_iteration(&name) {
            let depth = self.depths.get(&event.thread).copied().unwrap_or(0);
            self.count(name, depth + 1);
        }
    }

    fn name(&mut self, recording: &dyn Recording, event: &Event) -> String {
        let name = self.names.entry(event.address);
        let plain = || without_numbers(&recording.text(event.address).unwrap_or_default());
        name.or_insert_with(plain).clone()
    }

    fn count(&mut self, name: String, depth: u32) {
        let order = self.seen.len();
        if order < NAMES {
            let seen = self.seen.entry(name).or_insert((0, depth, order));
            seen.0 += 1;
            seen.1 = seen.1.min(depth);
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
        let often = self.seen.iter().filter(|(_, (count, ..))| *count >= LEAST);
        let (name, _) = often
            .min_by_key(|(name, (_, depth, order))| (!says_iteration(name), *depth, *order))?;
        Some(By::Range(name.clone()))
    }
}

/// Whether the name of a range says that it is an iteration: its last word does, as in `step 12`, `train_step`,
/// `ProfilerStep#12` and `Batch 3 of 10`. A `batch_norm` is none.
pub fn says_iteration(name: &str) -> bool {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        // A capital after a small letter begins a word, as in `trainStep`.
        let begins = letter.is_uppercase() && was_lower;
        if begins || !letter.is_alphabetic() {
            words.push(String::new());
        }
        if let Some(last) = words.last_mut().filter(|_| letter.is_alphabetic()) {
            last.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    let last = words
        .iter()
        .rev()
        .find(|word| !["", "of"].contains(&word.as_str()));
    let iterations = [
        "step",
        "steps",
        "iter",
        "iters",
        "iteration",
        "iterations",
        "batch",
        "minibatch",
    ];
    last.is_some_and(|last| iterations.contains(&last.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_iteration() {
        for name in [
            "step",
            "step #",
            "train_step",
            "trainStep",
            "ProfilerStep#",
            "Batch # of #",
            "epoch # step #",
            "iteration-#",
            "Optimizer.step#AdamW.step",
        ] {
            assert!(says_iteration(name), "{name}");
        }
        for name in [
            "batch_norm",
            "aten::batch_norm",
            "stepper",
            "iterator",
            "forward",
            "step_lr",
            "",
            "#",
            "batch_norm_backward_elemt",
        ] {
            assert!(!says_iteration(name), "{name}");
        }
    }
}

//! Iterations by the ranges that a program announced.

use rustc_hash::FxHashMap;

use crate::repeats::{Loop, Moment};

use super::beginning::begun_by;
use super::span::Span;
use super::{LEAST, without_numbers};
use gpushim_recording::Recording;
use gpushim_trace::{Kind, Record};

/// Highest number of different names; later ones are left out.
const NAMES: usize = 1 << 12;
/// Highest number of ranges of one name that are kept; later ones belong to the last.
const PASSES: usize = 1 << 16;

/// The names of ranges by their ids.
#[derive(Debug, Default)]
pub struct RangeNames(FxHashMap<u64, String>);

impl RangeNames {
    /// Returns the name of an id; empty if the recording does not have it.
    pub fn of(&mut self, recording: &dyn Recording, id: u64) -> &str {
        let name = self.0.entry(id);
        name.or_insert_with(|| recording.text(id).unwrap_or_default())
    }
}

/// Beginnings of the names of ranges that libraries announce by themselves.
const LIBRARIES: [&str; 20] = [
    "cub::",
    "thrust::",
    "nccl",
    "nvshmem",
    "cublas",
    "cudnn",
    "cusparse",
    "cusolver",
    "cufft",
    "curand",
    "cudss",
    "xla",
    "tsl:",
    "cupy",
    "rmm::",
    "cudf",
    "aten::",
    "at::",
    "c10",
    "autograd::",
];

/// Ranges by their names without numbers.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    names: FxHashMap<u64, Option<String>>,
    open: FxHashMap<u32, Vec<Option<String>>>,
    /// Ranges that may end on another thread, by their numbers.
    started: FxHashMap<u64, String>,
    seen: FxHashMap<String, Seen>,
}

/// All ranges of the same name.
#[derive(Debug)]
struct Seen {
    /// The thread and device of the first of them.
    by: (u32, u8),
    depth: usize,
    passes: Vec<Moment>,
    count: u64,
    /// The end of the newest one that ended.
    end: Option<Moment>,
}

impl Ranges {
    /// Notes that a range begins.
    pub(super) fn begin(&mut self, recording: &dyn Recording, record: &Record) {
        let event = &record.event;
        let name = self.names.entry(event.address).or_insert_with(|| {
            let text = recording.text(event.address).unwrap_or_default();
            (!is_of_library(&text)).then(|| without_numbers(&text))
        });
        let name = name.clone();
        let open = self.open.entry(event.thread).or_default();
        let depth = open.len();
        let is_push = event.kind == Kind::RangePush;
        if is_push {
            open.push(name.clone());
        }
        // Ranges that may end on another thread may overlap: their name must mark an iteration.
        let Some(name) = name.filter(|name| is_push || says_iteration(name)) else {
            return;
        };
        let at = Moment::of(record);
        if !is_push && self.started.len() < NAMES {
            self.started.insert(event.size, name.clone());
        }
        let is_full = self.seen.len() >= NAMES && !self.seen.contains_key(&name);
        let by = begun_by(event);
        let seen = || Seen {
            by,
            depth,
            passes: Vec::new(),
            count: 0,
            end: None,
        };
        if is_full {
            return;
        }
        let seen = self.seen.entry(name).or_insert_with(seen);
        if seen.by == by && seen.passes.len() < PASSES {
            seen.passes.push(at);
            seen.count += 1;
            seen.depth = seen.depth.min(depth);
        }
    }

    /// Notes that a range ends: the innermost of a thread, or the one of a number.
    pub(super) fn end(&mut self, record: &Record) {
        let event = &record.event;
        let name = match event.kind {
            Kind::RangePop => self
                .open
                .get_mut(&event.thread)
                .and_then(Vec::pop)
                .flatten(),
            _ => self.started.remove(&event.size),
        };
        if let Some(seen) = name.and_then(|name| self.seen.get_mut(&name)) {
            seen.end = Some(Moment::of(record));
        }
    }

    /// Returns repeated ranges as loops: the outermost first, iterations by name last.
    pub(super) fn finish(self, span: Span) -> Vec<(String, Loop)> {
        let repeats = self
            .seen
            .into_iter()
            .filter(|(_, seen)| seen.count >= LEAST);
        let mut all: Vec<(String, Seen)> = repeats.collect();
        all.sort_by(|(a, one), (b, other)| {
            let rank = |name: &str, seen: &Seen| {
                (
                    says_iteration(name),
                    seen.depth,
                    seen.passes.first().copied(),
                )
            };
            rank(a, one).cmp(&rank(b, other))
        });
        let passes = |seen: Seen| Loop {
            path: 0,
            depth: seen.depth,
            above: 0,
            is_other: false,
            end: seen
                .end
                .filter(|end| seen.passes.last().is_some_and(|last| last < end)),
            covered: span
                .last
                .ticket
                .saturating_sub(seen.passes.first().map_or(0, |first| first.ticket)),
            starts: seen.passes,
            stride: 1,
            count: seen.count,
            entries: 1,
        };
        all.into_iter()
            .map(|(name, seen)| (name, passes(seen)))
            .collect()
    }
}

/// Returns true if a library announces a range of this name by itself.
fn is_of_library(name: &str) -> bool {
    let name = name
        .trim_start_matches(['#', '[', ' '])
        .to_ascii_lowercase();
    LIBRARIES.iter().any(|library| name.starts_with(library))
}

/// Returns true if the last word of a range's name marks an iteration, as in `step 12`,
/// `train_step`, `ProfilerStep#12` and `Batch 3 of 10`. A `batch_norm` is none.
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

//! The phases of a training step: by the names of ranges, or of functions.

use rustc_hash::FxHashMap;

use crate::loops::{JournalEntry, What};
use crate::recording::{Frame, Names, Recording};

/// A phase of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Computes the loss.
    Forward,
    /// Computes the gradients.
    Backward,
    /// Changes the parameters, and clears the gradients.
    Optimizer,
}

impl Phase {
    /// Of a range. A step alone is as often a whole iteration.
    fn of_range(name: &str) -> Option<Phase> {
        let name = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if has(&["optim", "zero_grad", "adam", "sgd"]) {
            Some(Phase::Optimizer)
        } else if has(&["backward", "bwd"]) {
            Some(Phase::Backward)
        } else if has(&["forward", "fwd"]) {
            Some(Phase::Forward)
        } else {
            None
        }
    }

    /// Of a function.
    fn of_function(name: &str) -> Option<Phase> {
        let last = name.rsplit(['.', ':']).next().unwrap_or(name);
        let last = last.split(['(', '<']).next().unwrap_or(last);
        if name.contains("torch::autograd::Engine") || last == "backward" {
            Some(Phase::Backward)
        } else if last == "zero_grad" || (last == "step" && name.contains('.')) {
            Some(Phase::Optimizer)
        } else if last == "forward" {
            Some(Phase::Forward)
        } else {
            None
        }
    }
}

/// Which phase stacks and ranges are of.
pub struct Phases<'a> {
    recording: &'a dyn Recording,
    names: &'a mut dyn Names,
    ranges: FxHashMap<u64, Option<Phase>>,
    of_ranges: FxHashMap<u32, Option<Phase>>,
    of_frames: FxHashMap<u64, Option<Phase>>,
}

impl<'a> Phases<'a> {
    /// Of a recording.
    pub fn new(recording: &'a dyn Recording, names: &'a mut dyn Names) -> Phases<'a> {
        Phases {
            recording,
            names,
            ranges: FxHashMap::default(),
            of_ranges: FxHashMap::default(),
            of_frames: FxHashMap::default(),
        }
    }

    /// Of the range with this name.
    fn of_range(&mut self, name: u64) -> Option<Phase> {
        let recording = self.recording;
        *self
            .ranges
            .entry(name)
            .or_insert_with(|| Phase::of_range(&recording.text(name)?))
    }

    /// Of the outermost range that a stack says was open and that says so.
    pub fn of_ranges(&mut self, stack: u32) -> Option<Phase> {
        let recording = self.recording;
        *self.of_ranges.entry(stack).or_insert_with(|| {
            let open = recording.open_ranges(stack);
            open.iter().rev().find_map(|name| Phase::of_range(name))
        })
    }

    /// Of the innermost function of a stack that says so.
    pub fn of_frames(&mut self, stack: u32) -> Option<Phase> {
        let names = &mut *self.names;
        let key = self.recording.frames(stack);
        *self.of_frames.entry(key).or_insert_with(|| {
            let frames = names.stack(stack);
            let symbols = frames.iter().flat_map(|frame| match frame {
                Frame::Call(symbols) => &symbols[..],
                Frame::Range(_) => &[],
            });
            let mut functions = symbols.map(|symbol| &symbol.function);
            functions.find_map(|function| Phase::of_function(function))
        })
    }
}

/// A phase from its first event to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub from: u64,
    pub to: u64,
    pub phase: Phase,
}

/// The phases of a stretch of a run, one after the other.
#[derive(Debug, Default)]
pub struct Intervals {
    pub all: Vec<Interval>,
    /// Whether ranges say so, and not allocations.
    pub by_ranges: bool,
}

impl Intervals {
    /// By ranges if any say so, else by what allocated.
    pub fn of(entries: &[JournalEntry], phases: &mut Phases<'_>) -> Intervals {
        let all = by_ranges(entries, phases);
        if !all.is_empty() {
            return Intervals {
                all,
                by_ranges: true,
            };
        }
        let mut all: Vec<Interval> = Vec::new();
        for entry in entries {
            let What::Allocated(stack) = entry.what else {
                continue;
            };
            let Some(phase) = phases.of_frames(stack) else {
                continue;
            };
            match all.last_mut() {
                Some(last) if last.phase == phase => last.to = entry.ticket,
                _ => all.push(Interval {
                    from: entry.ticket,
                    to: entry.ticket,
                    phase,
                }),
            }
        }
        Intervals {
            all,
            by_ranges: false,
        }
    }

    /// The one that an event is in.
    pub fn at(&self, ticket: u64) -> Option<&Interval> {
        let after = self.all.partition_point(|one| one.from <= ticket);
        let last = self.all.get(after.checked_sub(1)?)?;
        (ticket <= last.to).then_some(last)
    }

    /// From the forward pass to the end of the last phase, if there is one forward and one backward pass.
    pub fn single_pass(&self) -> Option<[u64; 2]> {
        let forward = self.all.iter().find(|one| one.phase == Phase::Forward)?;
        let backward = self.next(Phase::Backward, forward.from)?;
        if self.next(Phase::Forward, backward.from).is_some() {
            return None;
        }
        Some([forward.from, self.all.last()?.to.saturating_add(1)])
    }

    /// The first of a phase that begins after an event.
    pub fn next(&self, phase: Phase, ticket: u64) -> Option<&Interval> {
        let mut later = self.all.iter().filter(|one| one.from > ticket);
        later.find(|one| one.phase == phase)
    }
}

/// The outermost ranges that say which phase they are; whatever happens meanwhile, on all threads, is of it.
fn by_ranges(entries: &[JournalEntry], phases: &mut Phases<'_>) -> Vec<Interval> {
    let mut all: Vec<Interval> = Vec::new();
    let mut open: Vec<(u32, Option<Phase>)> = Vec::new();
    let mut now: Option<Phase> = None;
    for entry in entries {
        match entry.what {
            What::Push(name) => open.push((entry.thread, phases.of_range(name))),
            What::Pop => {
                let innermost = open.iter().rposition(|(thread, _)| *thread == entry.thread);
                if let Some(at) = innermost {
                    open.remove(at);
                }
            }
            What::Allocated(_) | What::Freed(_) => continue,
        }
        let outermost = open.iter().find_map(|(_, phase)| *phase);
        if outermost == now {
            continue;
        }
        if let (Some(_), Some(last)) = (now, all.last_mut()) {
            last.to = entry.ticket;
        }
        all.extend(outermost.map(|phase| Interval {
            from: entry.ticket,
            to: u64::MAX,
            phase,
        }));
        now = outermost;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_phase() {
        for (range, phase) in [
            ("forward", Some(Phase::Forward)),
            ("Optimizer.step#AdamW.step", Some(Phase::Optimizer)),
            ("Optimizer.zero_grad#SGD.zero_grad", Some(Phase::Optimizer)),
            ("bwd layer 3", Some(Phase::Backward)),
            ("step 3", None),
        ] {
            assert_eq!(Phase::of_range(range), phase, "{range}");
        }
        for (function, phase) in [
            ("Linear.forward", Some(Phase::Forward)),
            ("forward", Some(Phase::Forward)),
            ("Adam.step", Some(Phase::Optimizer)),
            ("step", None),
            ("train_step", None),
            ("Tensor.backward", Some(Phase::Backward)),
            (
                "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::ReadyQueue> const&)",
                Some(Phase::Backward),
            ),
            ("main", None),
        ] {
            assert_eq!(Phase::of_function(function), phase, "{function}");
        }
    }
}

//! The phases of a training step: by the names of ranges, or of functions.

use rustc_hash::FxHashMap;

use crate::loops::{JournalEntry, What};
use crate::recording::{Frame, Names, Recording};

/// A phase of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The pass that computes the loss.
    Forward,
    /// The pass that computes the gradients.
    Backward,
    /// The step that changes the parameters, and clears the gradients.
    Optimizer,
}

impl Phase {
    /// Judges a range by its name. A step alone is as often a whole iteration.
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

    /// Judges a function by its name and its file.
    fn of_function(name: &str, file: Option<&str>) -> Option<Phase> {
        let last = name.rsplit(['.', ':']).next().unwrap_or(name);
        let last = last.split(['(', '<']).next().unwrap_or(last);
        let is_in = |part: &str| file.is_some_and(|file| file.replace('\\', "/").contains(part));
        if name.contains("torch::autograd::Engine") || last == "backward" {
            Some(Phase::Backward)
        } else if last == "zero_grad" || (last == "step" && name.contains('.')) || is_in(OPTIMIZERS)
        {
            Some(Phase::Optimizer)
        } else if last == "forward" {
            Some(Phase::Forward)
        } else {
            None
        }
    }
}

/// Folder of PyTorch's optimizers; they also wrap the `step` of an optimizer that a program
/// defines.
const OPTIMIZERS: &str = "/torch/optim/";

/// Finds the phases of stacks and ranges.
pub struct Phases<'a> {
    recording: &'a dyn Recording,
    names: &'a mut dyn Names,
    ranges: FxHashMap<u64, Option<Phase>>,
    of_ranges: FxHashMap<u32, Option<Phase>>,
    of_frames: FxHashMap<u64, Option<Phase>>,
}

impl<'a> Phases<'a> {
    pub fn new(recording: &'a dyn Recording, names: &'a mut dyn Names) -> Phases<'a> {
        Phases {
            recording,
            names,
            ranges: FxHashMap::default(),
            of_ranges: FxHashMap::default(),
            of_frames: FxHashMap::default(),
        }
    }

    /// Judges the range with this name.
    fn of_range(&mut self, name: u64) -> Option<Phase> {
        let recording = self.recording;
        *self
            .ranges
            .entry(name)
            .or_insert_with(|| Phase::of_range(&recording.text(name)?))
    }

    /// Returns the phase of the outermost open range of a stack that has one.
    pub fn of_ranges(&mut self, stack: u32) -> Option<Phase> {
        let recording = self.recording;
        *self.of_ranges.entry(stack).or_insert_with(|| {
            let open = recording.open_ranges(stack);
            open.iter().rev().find_map(|name| Phase::of_range(name))
        })
    }

    /// Returns the phase of the innermost function of a stack that has one.
    pub fn of_frames(&mut self, stack: u32) -> Option<Phase> {
        let names = &mut *self.names;
        let key = self.recording.frames(stack);
        *self.of_frames.entry(key).or_insert_with(|| {
            let frames = names.stack(stack);
            let symbols = frames.iter().flat_map(|frame| match frame {
                Frame::Call(symbols) => &symbols[..],
                Frame::Range(_) => &[],
            });
            let mut phases =
                symbols.map(|one| Phase::of_function(&one.function, one.file.as_deref()));
            phases.find_map(|phase| phase)
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
    /// True if ranges mark the end of backward, and not allocations.
    pub by_ranges: bool,
}

impl Intervals {
    /// Finds phases by the outermost ranges with a phase, for all events on all threads meanwhile.
    /// Outside of them, the allocating functions decide.
    pub fn of(entries: &[JournalEntry], phases: &mut Phases<'_>) -> Intervals {
        let mut found = Intervals::default();
        let mut open: Vec<(u32, Option<Phase>)> = Vec::new();
        let mut in_range: Option<Phase> = None;
        for entry in entries {
            match entry.what {
                What::Push(name) => open.push((entry.thread, phases.of_range(name))),
                What::Pop => {
                    let innermost = open.iter().rposition(|(thread, _)| *thread == entry.thread);
                    if let Some(at) = innermost {
                        open.remove(at);
                    }
                }
                What::Allocated(stack) if in_range.is_none() => {
                    if let Some(phase) = phases.of_frames(stack) {
                        found.add(phase, entry.ticket, entry.ticket);
                    }
                    continue;
                }
                What::Allocated(_) | What::Freed(_) => continue,
            }
            let outermost = open.iter().find_map(|(_, phase)| *phase);
            if outermost == in_range {
                continue;
            }
            if let (Some(_), Some(last)) = (in_range, found.all.last_mut()) {
                last.to = entry.ticket;
            }
            if let Some(phase) = outermost {
                found.by_ranges |= phase == Phase::Backward;
                found.all.push(Interval {
                    from: entry.ticket,
                    to: u64::MAX,
                    phase,
                });
            }
            in_range = outermost;
        }
        found
    }

    fn add(&mut self, phase: Phase, from: u64, to: u64) {
        match self.all.last_mut() {
            Some(last) if last.phase == phase => last.to = to,
            _ => self.all.push(Interval { from, to, phase }),
        }
    }

    /// Returns the one that an event is in.
    pub fn at(&self, ticket: u64) -> Option<&Interval> {
        let after = self.all.partition_point(|one| one.from <= ticket);
        let last = self.all.get(after.checked_sub(1)?)?;
        (ticket <= last.to).then_some(last)
    }

    /// Returns true if there is one forward pass and one backward pass after it.
    pub fn is_single_pass(&self) -> bool {
        let forward = self.next(Phase::Forward, 0);
        let backward = forward.and_then(|forward| self.next(Phase::Backward, forward.from));
        backward.is_some_and(|backward| self.next(Phase::Forward, backward.from).is_none())
    }

    /// Returns true if a phase has begun before an event.
    pub fn has_begun(&self, phase: Phase, ticket: u64) -> bool {
        self.all
            .iter()
            .any(|one| one.phase == phase && one.from <= ticket)
    }

    /// Returns the first of a phase that begins after an event.
    pub fn next(&self, phase: Phase, ticket: u64) -> Option<&Interval> {
        let mut later = self.all.iter().filter(|one| one.from > ticket);
        later.find(|one| one.phase == phase)
    }
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
            assert_eq!(Phase::of_function(function, None), phase, "{function}");
        }
        // An optimizer of the program's own, and the wrapper of PyTorch around it.
        let file = Some("/venv/lib/python3.12/site-packages/torch/optim/optimizer.py");
        assert_eq!(Phase::of_function("wrapper", file), Some(Phase::Optimizer));
        assert_eq!(Phase::of_function("wrapper", Some("/home/me/a.py")), None);
    }
}

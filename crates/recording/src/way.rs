//! The way of a stack from its outermost call to the allocation, in numbers alone.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

/// Call of a stack: the function, and the place in it of its next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Number that identifies the function; 0 if only the places of calls are known.
    pub function: u64,
    /// Number that identifies the place in the function: its line, or its instruction.
    pub site: u64,
}

/// A stack as a walk over call sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The calls, outermost first: Python's, or else the native ones.
    pub calls: Vec<Call>,
    /// A hash of the frames below the last call.
    pub below: u64,
    /// True if the calls are of Python, with their lines.
    pub has_lines: bool,
}

/// One frame on the way of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A frame of Python, with its line.
    Line(Call),
    /// A native frame, of which only the place may be known.
    Native(Call),
}

impl Way {
    /// Builds it from frames, the innermost first.
    pub(super) fn of(steps: impl Iterator<Item = Step>) -> Way {
        let mut below = FxHasher::default();
        let (mut lines, mut native) = (Vec::<Call>::new(), Vec::new());
        for step in steps {
            match step {
                Step::Line(call) => {
                    // Of a function that calls itself, the innermost call has the line.
                    let inner = lines.last();
                    if inner.is_none_or(|inner| inner.function != call.function) {
                        lines.push(call);
                    }
                }
                Step::Native(call) => {
                    if lines.is_empty() {
                        call.hash(&mut below);
                    }
                    native.push(call);
                }
            }
        }
        let has_lines = !lines.is_empty();
        let mut calls = if has_lines { lines } else { native };
        calls.reverse();
        Way {
            calls,
            below: if has_lines { below.finish() } else { 0 },
            has_lines,
        }
    }

    /// Returns a number for the calls, without the frames below them; 0 if there are none.
    pub fn number(&self) -> u64 {
        if self.calls.is_empty() {
            return 0;
        }
        let mut hasher = FxHasher::default();
        self.calls.hash(&mut hasher);
        hasher.finish() | 1
    }
}

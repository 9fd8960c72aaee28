//! The way of a stack from its outermost call to the allocation, in numbers alone.

use std::hash::{Hash, Hasher};

use gpushim_analysis::Call;
use rustc_hash::FxHasher;

/// A stack as a walk over call sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The calls, outermost first: those of Python, or else the native ones.
    pub calls: Vec<Call>,
    /// Tells apart what is below the last of them.
    pub below: u64,
    /// True if the calls are of Python, with their lines.
    pub has_lines: bool,
    /// Number of the calls down to one of autograd's that runs a backward pass, if there is one.
    pub backward: Option<usize>,
}

/// Returns true if a function of Python runs a backward pass of autograd.
pub(super) fn is_backward(function: &str, file: &str) -> bool {
    let name = function.rsplit('.').next();
    matches!(name, Some("backward" | "grad")) && file.ends_with("torch/autograd/__init__.py")
}

/// One frame on the way of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A frame of Python, with its line, and whether it runs a backward pass.
    Line(Call, bool),
    /// A native frame, of which only the place may be known.
    Native(Call),
}

impl Way {
    /// Builds it from frames, the innermost first.
    pub(super) fn of(steps: impl Iterator<Item = Step>) -> Way {
        let mut below = FxHasher::default();
        let (mut lines, mut native) = (Vec::<Call>::new(), Vec::new());
        let mut backward = None;
        for step in steps {
            match step {
                Step::Line(call, is_backward) => {
                    // A function that calls itself goes on: its innermost call says where it is.
                    let inner = lines.last();
                    if inner.is_none_or(|inner| inner.function != call.function) {
                        lines.push(call);
                    }
                    if is_backward {
                        backward.get_or_insert(lines.len() - 1);
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
        let depth = calls.len();
        Way {
            calls,
            below: if has_lines { below.finish() } else { 0 },
            has_lines,
            backward: backward.map(|inner| depth - inner),
        }
    }

    /// Tells the calls apart from others, without what is below them; 0 if there are none.
    pub fn number(&self) -> u64 {
        if self.calls.is_empty() {
            return 0;
        }
        let mut hasher = FxHasher::default();
        self.calls.hash(&mut hasher);
        hasher.finish() | 1
    }
}

//! The functions of a loop, by a stack through it and the loop's depth in this stack.

use gpushim_recording::symbols::{Kind, Origin, Symbol, base};
use gpushim_recording::{Frame, Function, Names};

/// The calls that a loop is in, the outermost first, its own function last.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings(Vec<Symbol>);

impl Surroundings {
    /// Reads a stack down to a depth. Native functions count only if no function is Python's.
    pub(super) fn of(names: &mut dyn Names, stack: u32, depth: usize) -> Surroundings {
        let frames = names.stack(stack);
        let first = |frame: &Frame| match frame {
            Frame::Call(symbols) => symbols.first().cloned(),
            Frame::Range(_) => None,
        };
        let all = || frames.iter().rev().filter_map(first);
        let python = |symbol: &Symbol| symbol.kind == Kind::Python;
        let calls: Vec<Symbol> = match all().any(|symbol| python(&symbol)) {
            true => innermost_of_each(all().filter(python))
                .take(depth)
                .collect(),
            false => all().take(depth).collect(),
        };
        Surroundings(calls)
    }

    /// Returns the depth of the looping function, if callers may loop instead. It is the innermost
    /// of the user's own functions that is not known for another loop.
    pub(super) fn depth(&self, above: usize, is_known: impl Fn(&Symbol) -> bool) -> usize {
        let depth = self.0.len();
        let mut may_loop = (depth.saturating_sub(above)..=depth).rev();
        let own = may_loop.find(|depth| {
            let call = depth.checked_sub(1).and_then(|at| self.0.get(at));
            call.is_some_and(|symbol| symbol.origin() == Origin::Own && !is_known(symbol))
        });
        own.unwrap_or(depth)
    }

    /// Cuts them at another depth.
    pub(super) fn up_to(&self, depth: usize) -> Surroundings {
        Surroundings(self.0.iter().take(depth).cloned().collect())
    }

    /// Cuts them at the outermost call that is wanted.
    pub(super) fn down_to(mut self, is_wanted: impl Fn(&Symbol) -> bool) -> Surroundings {
        let last = self.0.iter().position(is_wanted);
        self.0.truncate(last.map_or(usize::MAX, |last| last + 1));
        self
    }

    /// Returns the function that loops.
    pub(super) fn function(&self) -> Option<&Symbol> {
        self.0.last()
    }

    /// Returns true if the user wrote it.
    pub(super) fn is_own(&self) -> bool {
        self.function()
            .is_some_and(|symbol| symbol.origin() == Origin::Own)
    }

    /// Returns the call around all passes that makes one forward pass, backward pass, optimizer
    /// step or model.
    pub(super) fn one_pass(&self) -> Option<&Symbol> {
        self.0.iter().find(|symbol| is_one_pass(symbol))
    }

    /// Returns true if they are inside an optimizer's step. Repetitions there go over parameters,
    /// even if no other line of a caller shows it.
    pub(super) fn is_in_optimizer(&self) -> bool {
        self.0.iter().any(is_of_optimizer)
    }
}

/// Keeps only the innermost of a function's calls to itself. Takes and returns the outermost call
/// first.
fn innermost_of_each(calls: impl Iterator<Item = Symbol>) -> impl Iterator<Item = Symbol> {
    let mut calls = calls.peekable();
    std::iter::from_fn(move || {
        loop {
            let call = calls.next()?;
            let goes_on = |next: &&Symbol| next.function == call.function && next.file == call.file;
            if calls.peek().filter(goes_on).is_none() {
                return Some(call);
            }
        }
    })
}

/// Returns the function that loops, if it is known.
pub(super) fn function(names: &mut dyn Names, stack: u32, depth: usize) -> Option<Function> {
    let calls = Surroundings::of(names, stack, depth);
    calls.function().map(Function::of)
}

fn is_one_pass(symbol: &Symbol) -> bool {
    if symbol.kind != Kind::Python {
        return false;
    }
    let function = symbol.function.rsplit('.').next().unwrap_or_default();
    let file = symbol.file.as_deref().unwrap_or_default();
    let of_module =
        file.ends_with("torch/nn/modules/module.py") && function.ends_with("_call_impl");
    let of_backward = function == "backward"
        && (file.ends_with("torch/_tensor.py") || file.contains("/torch/autograd/"));
    let of_set_up =
        ["__init__", "_apply", "load_state_dict", "from_pretrained"].contains(&function);
    of_module || is_of_optimizer(symbol) || of_backward || of_set_up || function == "forward"
}

fn is_of_optimizer(symbol: &Symbol) -> bool {
    let file = symbol.file.as_deref().unwrap_or_default();
    let is_step = symbol.function.rsplit('.').next() == Some("step");
    symbol.kind == Kind::Python
        && (is_step && base(file).contains("optim") || file.contains("/torch/optim/"))
}

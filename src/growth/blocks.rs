//! Blocks that are left behind: the calls that made them, and their sizes.

use gpushim_trace::Kept;

use crate::recording::{Names, Owned, Owner, calls};
use crate::symbols::{Kind, Origin, Symbol};

/// Parts of the names of PyTorch's operators that copy.
const COPIES: [&str; 5] = ["::clone", "_to_copy", "::contiguous", "::cat", "::stack"];

/// Blocks that share a stack.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// The Python functions that were called, innermost first.
    calls: Vec<Symbol>,
    /// Native functions, innermost first.
    native: Vec<String>,
    /// Blocks that all passes left.
    number: u64,
    /// Bytes of each on average.
    bytes: u64,
    /// True if each replaces a smaller one.
    are_anew: bool,
    /// True if only some passes leave any.
    are_rare: bool,
    /// The owner of most of them, where that was recorded.
    owned: Option<Owned>,
}

impl Blocks {
    /// Looks up the calls of a stack id, for this many blocks with this many bytes in all.
    pub fn of(names: &mut dyn Names, stack: u32, blocks: u64, bytes: u64) -> Blocks {
        let stack = names.stack(stack);
        let mut found = Blocks {
            number: blocks,
            bytes: bytes / blocks.max(1),
            ..Blocks::default()
        };
        for symbol in calls(&stack) {
            match symbol.kind {
                Kind::Python => found.calls.push(symbol.clone()),
                _ => found.native.push(symbol.function.clone()),
            }
        }
        found
    }

    /// Sets `are_anew`: each replaces a smaller one.
    pub fn anew(self, are_anew: bool) -> Blocks {
        Blocks { are_anew, ..self }
    }

    /// Sets `are_rare`: only some passes leave any.
    pub fn rare(self, are_rare: bool) -> Blocks {
        Blocks { are_rare, ..self }
    }

    /// Sets the owner of most of them.
    pub fn owned(self, owned: Option<Owned>) -> Blocks {
        Blocks { owned, ..self }
    }

    /// Returns the owner if it keeps them in this way, and by a path.
    pub fn owner(&self, kept: Kept) -> Option<&Owner> {
        let owner = &self.owned.as_ref()?.owner;
        (owner.kept == kept && !owner.path.is_empty()).then_some(owner)
    }

    /// Returns the number of them that their owner is known to keep.
    pub fn owned_number(&self) -> u64 {
        let owned = self.owned.as_ref();
        owned.map_or(0, |owned| owned.blocks.min(self.number))
    }

    /// Returns true if only some passes leave any.
    pub fn are_rare(&self) -> bool {
        self.are_rare
    }

    /// Returns true if each replaces a smaller one.
    pub fn are_anew(&self) -> bool {
        self.are_anew
    }

    /// Returns true if a user's own function of autograd made them.
    pub fn is_of_function(&self) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| file(call).ends_with("torch/autograd/function.py"))
    }

    /// Returns how many blocks all passes left.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns true if the user's own function made them, and not a layer that it called.
    pub fn is_own(&self) -> bool {
        self.calls.first().is_some_and(is_of_user)
    }

    /// Returns the average bytes of a block.
    pub fn largest(&self) -> u64 {
        self.bytes
    }

    /// Returns true if a function of one of these names was called.
    pub fn calls(&self, names: &[&str]) -> bool {
        self.calls
            .iter()
            .any(|call| names.contains(&last(&call.function)))
    }

    /// Returns true if an optimizer's own step made them, and not a function that it was given.
    pub fn is_step(&self) -> bool {
        let mut calls = self.calls.iter().take_while(|call| !is_of_user(call));
        calls.any(|call| last(&call.function) == "step" && file(call).contains("/torch/optim/"))
    }

    /// Returns true if a function of this name, of a file in this folder, was called.
    pub fn calls_in(&self, name: &str, folder: &str) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| last(&call.function) == name && file(call).contains(folder))
    }

    /// Returns true if a function of one of these files was called.
    pub fn in_file(&self, names: &[&str]) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| names.contains(&crate::symbols::base(file(call))))
    }

    /// Returns true if the name of a called function has one of these parts.
    pub fn names(&self, parts: &[&str]) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| parts.iter().any(|part| call.function.contains(part)))
    }

    /// Returns true if the innermost function of the user has one of these parts in its name.
    pub fn user_names(&self, parts: &[&str]) -> bool {
        self.user()
            .is_some_and(|call| parts.iter().any(|part| call.function.contains(part)))
    }

    /// Returns true if a module's forward pass made them.
    pub fn is_forward(&self) -> bool {
        self.calls(&["forward"]) || self.calls_in("_call_impl", "/torch/nn/")
    }

    /// Returns true if a backward pass made them.
    pub fn is_backward(&self) -> bool {
        self.calls_in("backward", "/torch/")
            || self
                .native
                .iter()
                .any(|name| name.contains("torch::autograd::Engine"))
    }

    /// Returns true if they belong to a graph of autograd.
    pub fn is_graph(&self) -> bool {
        self.is_forward() || self.is_backward()
    }

    /// Returns true if a loss function made them.
    pub fn is_loss(&self) -> bool {
        self.names(&["loss", "Loss", "cross_entropy", "criterion"]) || self.in_file(&["loss.py"])
    }

    /// Returns true if the innermost operator is a reduction.
    pub fn is_reduction(&self) -> bool {
        let mut native = self.native.iter();
        native.any(|name| {
            [
                "at::mean",
                "at::sum",
                "sum_cuda",
                "mean_cuda",
                "at::_ops::mean",
                "at::_ops::sum",
            ]
            .iter()
            .any(|part| name.contains(part))
        })
    }

    /// Returns true if a copying operator made them, called by the user's own function.
    pub fn is_copy(&self) -> bool {
        let copies = |name: &String| COPIES.iter().any(|part| name.contains(part));
        self.calls.first().is_some_and(is_of_user) && self.native.iter().any(copies)
    }

    fn user(&self) -> Option<&Symbol> {
        self.calls.iter().find(|call| is_of_user(call))
    }
}

/// Returns the last part of a function's name.
fn last(function: &str) -> &str {
    function.rsplit('.').next().unwrap_or(function)
}

fn is_of_user(call: &Symbol) -> bool {
    call.origin() == Origin::Own
}

fn file(call: &Symbol) -> &str {
    call.file.as_deref().unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Adds the native function that made the blocks.
    pub(in crate::growth) fn by_operator(mut blocks: Blocks, native: &str) -> Blocks {
        blocks.native.push(native.to_string());
        blocks
    }

    impl Blocks {
        /// Sets the number of blocks.
        pub(in crate::growth) fn times(self, number: u64) -> Blocks {
            Blocks { number, ..self }
        }
    }

    /// One block of this size, made by calls of these functions of these files, the innermost
    /// first.
    pub(in crate::growth) fn of(bytes: u64, calls: &[(&str, &str)]) -> Blocks {
        let call = |(function, file): &(&str, &str)| Symbol {
            function: function.to_string(),
            file: Some(file.to_string()),
            line: None,
            module: None,
            inlined: false,
            kind: Kind::Python,
            known: Default::default(),
        };
        Blocks {
            calls: calls.iter().map(call).collect(),
            native: Vec::new(),
            number: 1,
            bytes,
            are_anew: false,
            are_rare: false,
            owned: None,
        }
    }
}

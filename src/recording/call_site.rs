//! Who is responsible for a block, in words.

use serde::Serialize;

use super::blame::{blame, is_of_interpreter};
use super::{Frame, Names};
use crate::symbols::{Kind, line};

/// The function behind a stack, and the way to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallSite {
    /// The function that a user would change, with its place: `Leaky.forward  train.py:31`; empty where
    /// no stack was recorded.
    pub function: String,
    /// The functions, innermost first; where Python's have names, without the interpreter's own.
    pub frames: Vec<String>,
    /// The ranges that were open, innermost first.
    pub ranges: Vec<String>,
}

impl CallSite {
    /// Who a stack id stands for.
    pub fn of(names: &mut dyn Names, stack: u32) -> CallSite {
        let stack = names.stack(stack);
        let symbols = || {
            stack.iter().flat_map(|frame| match frame {
                Frame::Call(symbols) => &symbols[..],
                Frame::Range(_) => &[],
            })
        };
        // Where Python's functions have names, those of the interpreter that runs them say nothing.
        let has_python = symbols().any(|symbol| symbol.kind == Kind::Python);
        let frames = symbols()
            .filter(|symbol| !has_python || !is_of_interpreter(symbol))
            .map(line);
        let ranges = stack.iter().filter_map(|frame| match frame {
            Frame::Range(name) => Some(name.clone()),
            Frame::Call(_) => None,
        });
        CallSite {
            function: blame(&stack).map(line).unwrap_or_default(),
            frames: frames.collect(),
            ranges: ranges.collect(),
        }
    }

    /// The function in a sentence: `Leaky.forward train.py:31`.
    pub fn in_a_sentence(&self) -> String {
        if self.function.is_empty() {
            "an allocation without a recorded stack".to_string()
        } else {
            format!("`{}`", self.function.replacen("  ", " ", 1))
        }
    }
}

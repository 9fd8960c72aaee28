//! Who is responsible for a block, in words.

use serde::Serialize;

use super::{Frame, Names, blame};
use crate::symbols::{line, lines};

/// The function behind a stack, and the way to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Who {
    /// The function that a user would change, with its place: `Leaky.forward  train.py:31`; empty where
    /// no stack was recorded.
    pub function: String,
    /// All functions, innermost first.
    pub frames: Vec<String>,
    /// The ranges that were open, innermost first.
    pub ranges: Vec<String>,
}

impl Who {
    /// Who a stack id stands for.
    pub fn of(names: &mut dyn Names, stack: u32) -> Who {
        let stack = names.stack(stack);
        let frames = stack.iter().flat_map(|frame| match frame {
            Frame::Call(symbols) => lines(symbols),
            Frame::Range(_) => Vec::new(),
        });
        let ranges = stack.iter().filter_map(|frame| match frame {
            Frame::Range(name) => Some(name.clone()),
            Frame::Call(_) => None,
        });
        Who {
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

//! The calls of Python functions that lead to an allocation.

use std::collections::HashMap;

use gpushim_trace::Writer;

use super::{ACTIVATIONS, GRADIENTS, LEAK, MAIN, PARAMETERS, STATE};

/// Address of the first function of Python.
const AT: u64 = 0x7000_0000;
const BYTES: u32 = 64;
const MODULE: &str = "/usr/lib/python3/site-packages/torch/nn/modules/module.py";

/// The functions whose names are written.
#[derive(Default)]
pub(super) struct Functions(HashMap<String, u64>);

impl Functions {
    /// The return addresses of an allocation by `function`, the innermost first.
    pub(super) fn frames(&mut self, writer: &Writer, function: u64) -> Vec<u64> {
        let train = "/home/me/train.py";
        let torch = |file: &str| format!("/usr/lib/python3/site-packages/torch/{file}");
        let module = ("Module._call_impl", MODULE.to_string());
        let calls = match function {
            PARAMETERS..ACTIVATIONS => vec![("Net.__init__", train.to_string())],
            ACTIVATIONS..GRADIENTS => vec![
                module.clone(),
                ("Net.forward", train.to_string()),
                module,
                ("Linear.forward", torch("nn/modules/linear.py")),
            ],
            // The thread of the backward pass has no Python.
            GRADIENTS..STATE => return vec![function],
            STATE..LEAK => vec![
                ("Optimizer.step", torch("optim/adamw.py")),
                ("_init_group", torch("optim/adamw.py")),
            ],
            LEAK..MAIN => vec![("keep", train.to_string())],
            _ => Vec::new(),
        };
        let main = std::iter::once(("main", train.to_string()));
        let mut frames: Vec<u64> = main
            .chain(calls)
            .map(|(name, file)| self.address(writer, &format!("py::{name}:{file}")))
            .collect();
        frames.push(function);
        frames.reverse();
        frames
    }

    fn address(&mut self, writer: &Writer, name: &str) -> u64 {
        let number = self.0.len() as u64;
        let place = self.0.entry(name.to_string()).or_insert_with(|| {
            let begin = AT + number * u64::from(BYTES);
            assert!(writer.jit(begin, BYTES, writer.intern(name)));
            begin
        });
        *place + 8
    }
}

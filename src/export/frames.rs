//! Stacks as lists of named functions.

use serde::Serialize;

use crate::output::escape::is_unseen;
use crate::recording::Frame;
use crate::symbols::{Kind, Symbol};

/// One function of a stack, or a range that was open.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Function {
    #[serde(rename = "function")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line of the source file; 0 if unknown.
    #[serde(skip_serializing_if = "is_unknown")]
    pub line: u32,
    pub kind: &'static str,
}

fn is_unknown(line: &u32) -> bool {
    *line == 0
}

impl Function {
    fn of(symbol: &Symbol) -> Function {
        let place = symbol.file.as_ref().or(symbol.module.as_ref());
        Function {
            name: symbol.function.clone(),
            file: place.cloned().unwrap_or_default(),
            line: symbol.line.unwrap_or(0),
            kind: match symbol.kind {
                Kind::Native => "native",
                Kind::Python => "python",
                Kind::Jit => "jit",
                Kind::Unknown => "unknown",
            },
        }
    }

    fn range(name: &str) -> Function {
        Function {
            name: format!("[{name}]"),
            file: String::new(),
            line: 0,
            kind: "range",
        }
    }

    /// `function (file.py:12)`, on one line.
    pub(super) fn label(&self) -> String {
        let file = crate::symbols::base(&self.file);
        let label = match (file, self.line) {
            ("", _) => self.name.clone(),
            (file, 0) => format!("{} ({file})", self.name),
            (file, line) => format!("{} ({file}:{line})", self.name),
        };
        label.replace(is_unseen, " ")
    }
}

/// The functions of a stack, innermost first, then its ranges.
pub(super) fn functions(stack: &[Frame]) -> Vec<Function> {
    let of = |frame: &Frame| match frame {
        Frame::Call(symbols) => symbols.iter().map(Function::of).collect(),
        Frame::Range(name) => vec![Function::range(name)],
    };
    stack.iter().flat_map(of).collect()
}

/// The functions of a stack on one line, outermost first, as flame graphs are made of.
pub(super) fn folded(stack: &[Frame]) -> String {
    let labels: Vec<String> = functions(stack)
        .iter()
        .rev()
        .map(|function| function.label().replace(';', ":"))
        .collect();
    labels.join(";")
}

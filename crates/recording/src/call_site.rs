//! The call site that is responsible for a block.

use serde::Serialize;

use super::blame::{blame, calls, ranges};
use super::{Frame, Names};
use crate::symbols::{Kind, Origin, Symbol, base, short};

/// A function, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Function {
    /// Its name, without the types of its parameters: `Leaky.forward`.
    pub name: String,
    /// The path of its source file, as recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line of the call in that file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The path of the program or library, of native code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Kind of the function's code.
    pub kind: Kind,
}

impl Function {
    /// Takes the names of a symbol.
    pub fn of(symbol: &Symbol) -> Function {
        let is_known = symbol.kind != Kind::Unknown;
        Function {
            name: match is_known {
                true => short(&symbol.function),
                false => symbol.function.clone(),
            },
            file: symbol.file.clone(),
            line: symbol.line,
            module: symbol.module.clone(),
            kind: symbol.kind,
        }
    }

    /// Returns its file and line without folders: `train.py:31`; empty if they are unknown.
    pub fn place(&self) -> String {
        match (&self.file, self.line, &self.module) {
            _ if self.kind == Kind::Unknown => String::new(),
            (Some(file), Some(line), _) => format!("{}:{line}", base(file)),
            (Some(place), None, _) | (None, _, Some(place)) => base(place).to_string(),
            (None, _, None) => String::new(),
        }
    }

    /// Returns it for a column: `Leaky.forward  train.py:31`.
    pub fn label(&self) -> String {
        self.with_place("  ")
    }

    /// Returns it for a sentence: `Leaky.forward train.py:31`.
    pub fn in_a_sentence(&self) -> String {
        self.with_place(" ")
    }

    fn with_place(&self, between: &str) -> String {
        match self.place().as_str() {
            "" => self.name.clone(),
            place => format!("{}{between}{place}", self.name),
        }
    }

    /// Returns true if it is the body of a file, whose callers do not matter.
    fn is_file(&self) -> bool {
        self.name == "<module>"
    }
}

/// The function behind a stack, and the way to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallSite {
    /// The function that a user would change: the innermost of the user's own code, or where there
    /// is none the innermost of a library; null where no stack was recorded.
    pub function: Option<Function>,
    /// True for the user's own code.
    pub is_own: bool,
    /// The next function of the user's own code on the way out to `main`, if `function` is the
    /// user's own: where that is a helper, this is what it was called for.
    pub called_by: Option<Function>,
    /// The operator of PyTorch that the function called for the allocation: `mul_Tensor`.
    pub operator: Option<String>,
    /// The functions, innermost first, without allocators, runtimes, interpreters and recorders,
    /// unless there is nothing else.
    pub frames: Vec<Function>,
    /// Number of functions left out of `frames`.
    pub frames_hidden: usize,
    /// The ranges that were open, innermost first.
    pub ranges: Vec<String>,
}

impl CallSite {
    /// Finds the call site of a stack id.
    pub fn of(names: &mut dyn Names, stack: u32) -> CallSite {
        CallSite::new(&names.stack(stack))
    }

    /// Finds the call site of a stack.
    pub fn new(stack: &[Frame]) -> CallSite {
        let blamed = blame(stack);
        let is_own = blamed.is_some_and(|symbol| symbol.origin() == Origin::Own);
        let function = blamed.map(Function::of);
        let own = calls(stack).filter(|symbol| symbol.origin() == Origin::Own);
        let callers =
            own.skip_while(|symbol| !blamed.is_some_and(|one| std::ptr::eq(one, *symbol)));
        let mut callers = callers.skip(1).map(Function::of);
        let called_by = function.as_ref().and_then(|function| {
            callers.find(|caller| (&caller.name, &caller.file) != (&function.name, &function.file))
        });
        let inner =
            calls(stack).take_while(|symbol| !blamed.is_some_and(|one| std::ptr::eq(one, *symbol)));
        let operator = inner.filter_map(Symbol::operator).last();
        let is_all = blamed.is_some_and(|symbol| symbol.origin().is_below());
        let frames = calls(stack).filter(|symbol| is_all || !symbol.origin().is_below());
        let frames: Vec<Function> = frames.map(Function::of).collect();
        CallSite {
            function,
            is_own,
            called_by: called_by.filter(|caller| is_own && !caller.is_file()),
            operator: operator.map(String::from),
            frames_hidden: calls(stack).count() - frames.len(),
            frames,
            ranges: ranges(stack),
        }
    }

    /// Returns the first function of the user's own code, if the stack has any.
    pub fn place(&self) -> Option<&Function> {
        self.function.as_ref().filter(|_| self.is_own)
    }

    /// Returns the function for a column, or `otherwise` if no stack was recorded.
    pub fn function_or(&self, otherwise: &str) -> String {
        let function = self.function.as_ref();
        function.map_or_else(|| otherwise.to_string(), Function::label)
    }

    /// Returns the function and its caller: `copy train.py:12, called by Leaky.forward
    /// train.py:31`. Returns `None` if no stack was recorded.
    pub fn with_caller(&self) -> Option<String> {
        let caller = self.called_by.as_ref();
        let by = caller.map(|caller| format!(", called by {}", caller.in_a_sentence()));
        let function = self.function.as_ref()?.in_a_sentence();
        Some(format!("{function}{}", by.unwrap_or_default()))
    }

    /// Returns the function in a sentence, without its caller: `copy train.py:12`.
    pub fn in_a_sentence(&self) -> String {
        match &self.function {
            Some(function) => format!("`{}`", function.in_a_sentence()),
            None => "an allocation without a recorded stack".to_string(),
        }
    }
}

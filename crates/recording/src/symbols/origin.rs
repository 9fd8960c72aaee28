//! The origin of a function: the user's own code, a library, or code below it. The last are
//! allocators, runtimes and interpreters, which no user would change.

use super::{Kind, Symbol, base};

mod qualified;
mod table;
#[cfg(test)]
mod tests;

use qualified::qualified;
use table::{Of, TABLE};

/// The origin of a function, from the code that a user would change first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Code that the user wrote.
    Own,
    /// A library that the user calls.
    Library,
    /// The inside of a framework in C++: operators, autograd, the dispatcher.
    Framework,
    /// Python that only passes a call on: wrappers, context managers, dispatch.
    Plumbing,
    /// The interpreter, and its code for calls of C functions.
    Interpreter,
    /// An allocator above the driver.
    Allocator,
    /// The C library, CUDA and other runtimes.
    Runtime,
    /// The code that recorded the stack, gpushim included.
    Recorder,
}

impl Origin {
    /// Finds the origin of a function, by its name, its file and its module.
    pub(super) fn of(symbol: &Symbol) -> Origin {
        let told = Told::of(symbol);
        if let Some((_, origin)) = TABLE.iter().find(|(of, _)| of.fits(&told)) {
            return *origin;
        }
        let function = &symbol.function;
        match (symbol.kind, &symbol.module) {
            (Kind::Python | Kind::Jit, _) | (Kind::Native, Some(_)) => Origin::Own,
            (Kind::Unknown, Some(_)) => Origin::Library,
            (Kind::Unknown, None) => Origin::Runtime,
            // Recordings of other tools do not name the file of native code. C++ has parameters or
            // a namespace; a name with neither is C: the interpreter.
            (Kind::Native, None) if function.contains("::") || function.contains('(') => {
                Origin::Library
            }
            (Kind::Native, None) => Origin::Interpreter,
        }
    }

    /// Returns true if it is left out of output for people, unless a stack has nothing else.
    pub fn is_below(self) -> bool {
        self > Origin::Library
    }
}

/// Parts of a symbol that entries are compared with.
struct Told<'a> {
    /// The path of Python's file, in the form of Linux.
    file: Option<String>,
    /// The function of Python, without its class.
    python: &'a str,
    /// The native function, without its type and its parameters.
    native: Option<&'a str>,
    /// The path of the module of native code.
    module: Option<&'a str>,
}

impl Told<'_> {
    fn of(symbol: &Symbol) -> Told<'_> {
        let is_python = symbol.kind == Kind::Python;
        let is_in_module = matches!(symbol.kind, Kind::Native | Kind::Unknown);
        let file = symbol.file.as_deref().unwrap_or_default();
        Told {
            file: is_python.then(|| format!("/{}", file.replace('\\', "/"))),
            python: base_name(&symbol.function),
            native: (symbol.kind == Kind::Native).then(|| qualified(&symbol.function)),
            module: symbol.module.as_deref().filter(|_| is_in_module),
        }
    }
}

impl Of {
    fn fits(&self, told: &Told<'_>) -> bool {
        let file = told.file.as_deref();
        match *self {
            Of::File(part) => file.is_some_and(|file| fits(part, file)),
            Of::Python(part, functions) => {
                file.is_some_and(|file| functions.contains(&told.python) && fits(part, file))
            }
            Of::Module(start) => told
                .module
                .is_some_and(|module| base(module).starts_with(start)),
            Of::Folder(part) => told.module.is_some_and(|module| fits(part, module)),
            Of::Name(start) => told.native.is_some_and(|name| name.starts_with(start)),
            Of::Exact(name) => told.native == Some(name),
        }
    }
}

/// Returns `forward` of `Linear.forward`.
fn base_name(function: &str) -> &str {
    function.rsplit('.').next().unwrap_or(function)
}

/// Returns true if a text contains the parts of a pattern, which `*` separates, in their order.
fn fits(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    pattern.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = rest.get(at + part.len()..).unwrap_or_default();
            true
        }
        None => false,
    })
}

//! Of a stack, the function that a user would change.

use super::Frame;
use crate::symbols::{Kind, Symbol};

/// Folders of Python that are not the user's own.
const INSTALLED: [&str; 4] = [
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "<frozen",
];

/// Where native code of the user is not: the C library, CUDA, frameworks and the interpreter. A module
/// whose file name begins with one of these.
const LIBRARIES: [&str; 22] = [
    "libgpushim",
    "libc.",
    "libc-",
    "libm.",
    "libpthread",
    "libdl.",
    "ld-linux",
    "libstdc++",
    "libgcc",
    "libcuda",
    "libcudart",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcusolver",
    "libcusparse",
    "libnccl",
    "libnv",
    "libtorch",
    "libc10",
    "libpython",
    "linux-vdso",
];

/// The function responsible for a stack: the innermost Python function of the user's own files, or else
/// the innermost native one of a program or library that is not known to be somebody else's, or else the
/// innermost Python function, or else the innermost of all. `None` for a stack without frames.
pub fn blame(stack: &[Frame]) -> Option<&Symbol> {
    let symbols = || {
        stack.iter().flat_map(|frame| match frame {
            Frame::Call(symbols) => &symbols[..],
            Frame::Range(_) => &[],
        })
    };
    let is_python = |symbol: &&Symbol| symbol.kind == Kind::Python;
    symbols()
        .find(|symbol| is_python(symbol) && is_of_user(symbol))
        .or_else(|| {
            let mut native =
                symbols().filter(|symbol| matches!(symbol.kind, Kind::Native | Kind::Jit));
            native.find(|symbol| is_of_user(symbol))
        })
        .or_else(|| symbols().find(is_python))
        .or_else(|| symbols().next())
}

/// Whether a function is of the user's own code, as far as its place tells.
pub fn is_of_user(symbol: &Symbol) -> bool {
    match symbol.kind {
        Kind::Python => {
            let file = symbol.file.as_deref().unwrap_or_default();
            !INSTALLED.iter().any(|part| file.contains(part))
        }
        Kind::Native => {
            // Recordings of others do not say where native code is; of those that do we know all.
            let Some(module) = symbol.module.as_deref() else {
                return false;
            };
            let name = crate::symbols::base(module);
            !is_of_interpreter(symbol)
                && !LIBRARIES.iter().any(|library| name.starts_with(library))
                && !INSTALLED.iter().any(|part| module.contains(part))
        }
        Kind::Jit => true,
        Kind::Unknown => false,
    }
}

/// Whether a function is of the Python interpreter itself, or of what it calls C functions with.
pub fn is_of_interpreter(symbol: &Symbol) -> bool {
    let module = symbol.module.as_deref().unwrap_or_default();
    let name = crate::symbols::base(module);
    let is_extension = name.starts_with("_ctypes.");
    symbol.kind != Kind::Python
        && (is_extension
            || ["python", "libpython", "libffi"]
                .iter()
                .any(|start| name.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn call(kind: Kind, function: &str, place: &str) -> Frame {
        let is_native = kind == Kind::Native;
        let place = Some(place.to_string());
        Frame::Call(Rc::new([Symbol {
            function: function.to_string(),
            file: place.clone().filter(|_| !is_native),
            line: None,
            module: place.filter(|_| is_native),
            inlined: false,
            kind,
        }]))
    }

    #[test]
    fn who_would_change_it() {
        let torch = call(
            Kind::Native,
            "at::empty",
            "/usr/lib/python3/site-packages/torch/lib/libtorch_cuda.so",
        );
        let eval = call(
            Kind::Native,
            "_PyEval_EvalFrameDefault",
            "/usr/bin/python3.12",
        );
        let linear = call(
            Kind::Python,
            "Linear.forward",
            "/usr/lib/python3.12/site-packages/torch/nn/modules/linear.py",
        );
        let leaky = call(Kind::Python, "Leaky.forward", "/home/me/train.py");
        let main = call(Kind::Python, "main", "/home/me/train.py");
        let native = call(Kind::Native, "Solver::step()", "/opt/solver/bin/solver");
        let range = Frame::Range("step 3".to_string());
        let blamed = |stack: &[&Frame]| {
            let stack: Vec<Frame> = stack.iter().map(|frame| (*frame).clone()).collect();
            blame(&stack).map(|symbol| symbol.function.clone())
        };
        let is = |name: &str| Some(name.to_string());
        assert_eq!(
            blamed(&[&torch, &linear, &leaky, &main, &range]),
            is("Leaky.forward")
        );
        assert_eq!(blamed(&[&torch, &linear, &eval]), is("Linear.forward"));
        assert_eq!(blamed(&[&torch, &native, &linear]), is("Solver::step()"));
        assert_eq!(blamed(&[&torch, &eval, &range]), is("at::empty"));
        assert_eq!(blamed(&[&range]), None);
        assert_eq!(blamed(&[]), None);
    }
}

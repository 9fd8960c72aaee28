//! Names of code that is in no file, as perf maps give them.

use super::{Kind, Symbol};

/// Makes a symbol of a name; CPython names its functions `py::NAME:FILE`
/// (Python/perf_trampoline.c).
pub(super) fn symbol(name: &str) -> Symbol {
    let python = name
        .strip_prefix("py::")
        .and_then(|rest| rest.split_once(':'));
    let (kind, function, file) = match python {
        Some((function, file)) => (Kind::Python, function, Some(file.to_string())),
        None => (Kind::Jit, name, None),
    };
    Symbol {
        function: function.to_string(),
        file,
        kind,
        ..Symbol::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_names_are_taken_apart() {
        let found = symbol("py::Linear.forward:/opt/a:b/train.py");
        assert_eq!(found.kind, Kind::Python);
        assert_eq!(found.function, "Linear.forward");
        assert_eq!(found.file.as_deref(), Some("/opt/a:b/train.py"));
        for other in ["LazyCompile:~f app.js:1", "py::", "py::f", ""] {
            assert_eq!(
                (symbol(other).kind, symbol(other).function),
                (Kind::Jit, other.to_string())
            );
        }
    }
}

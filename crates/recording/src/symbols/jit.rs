//! Names of code that is in no file, as perf maps give them.

use std::collections::BTreeMap;

use super::{Kind, Symbol};

/// A name for code that a compiler made at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jit {
    /// Address of its first byte.
    pub begin: u64,
    /// The first address after it.
    pub end: u64,
    /// Its name in the perf map.
    pub name: String,
}

/// Names by address. If two overlap, the later one counts: the earlier code no longer exists.
#[derive(Debug)]
pub struct Names(BTreeMap<u64, (u64, String)>);

impl Names {
    /// Takes names in the order in which they were given.
    pub fn new(all: impl IntoIterator<Item = Jit>) -> Names {
        let mut names: BTreeMap<u64, (u64, String)> = BTreeMap::new();
        for Jit { begin, end, name } in all {
            if begin >= end {
                continue;
            }
            // Kept names do not overlap one another, so all names in the way are next to each
            // other.
            while let Some((&old, _)) = names
                .range(..end)
                .next_back()
                .filter(|(_, (to, _))| *to > begin)
            {
                names.remove(&old);
            }
            names.insert(begin, (end, name));
        }
        Names(names)
    }

    /// Returns the function at an address.
    pub fn find(&self, at: u64) -> Option<Symbol> {
        let (_, (end, name)) = self.0.range(..=at).next_back()?;
        (at < *end).then(|| symbol(name))
    }
}

/// Makes a symbol of a name; CPython names its functions `py::NAME:FILE`
/// (Python/perf_trampoline.c).
fn symbol(name: &str) -> Symbol {
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
        line: None,
        module: None,
        inlined: false,
        kind,
        known: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jit(begin: u64, end: u64, name: &str) -> Jit {
        Jit {
            begin,
            end,
            name: name.to_string(),
        }
    }

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

    #[test]
    fn of_names_that_overlap_the_later_counts() {
        let names = Names::new([
            jit(100, 200, "a"),
            jit(200, 300, "b"),
            jit(300, 400, "c"),
            jit(400, 400, "empty"),
            jit(150, 301, "new"),
            jit(500, 400, "backwards"),
        ]);
        let at = |address| names.find(address).map(|symbol| symbol.function);
        let expected = [
            (99, None),
            (100, None),
            (150, Some("new")),
            (300, Some("new")),
            (301, None),
            (400, None),
            (450, None),
        ];
        for (address, name) in expected {
            assert_eq!(at(address).as_deref(), name, "{address}");
        }
    }
}

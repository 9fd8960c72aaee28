//! The user's mark of the beginning of an iteration: a range, a function or a size.

use std::fmt;

use super::without_numbers;
use gpushim_config::size;
use gpushim_recording::error::{Result, failed};
use gpushim_recording::symbols::{Symbol, base, short};

/// The beginning of an iteration, as the user sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// An allocation of this many requested bytes.
    Size(u64),
    /// A range of this name, or else the first allocation in a call of a function of this name.
    Name(String),
}

/// The part of a range's name that must equal the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// The whole of the range's name.
    Exact,
    /// The name without its numbers.
    WithoutNumbers,
    /// Its words: `step` is the name of `step 12`.
    Words,
}

/// The name of the ranges that are iterations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeName {
    /// The part that is compared.
    pub text: String,
    /// The way of the comparison.
    pub likeness: Likeness,
}

impl Marker {
    /// Parses `step`, `Model.forward`, `4194304` or `4MiB`.
    ///
    /// # Errors
    /// Nothing but spaces is no name, and no allocation is of 0 bytes.
    pub fn parse(text: &str) -> Result<Marker> {
        match size(text.trim()) {
            Some(0) => Err(failed!("no allocation is of 0 bytes")),
            Some(bytes) => Ok(Marker::Size(bytes)),
            None if text.trim().is_empty() => Err(failed!(
                "expected the name of a range or a function, or a size like 4MiB"
            )),
            None => Ok(Marker::Name(text.to_string())),
        }
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Marker::Size(bytes) => write!(f, "{bytes} bytes"),
            Marker::Name(name) => write!(f, "`{name}`"),
        }
    }
}

impl Likeness {
    /// All ways to compare names, the strictest first.
    pub const ALL: [Likeness; 3] = [Likeness::Exact, Likeness::WithoutNumbers, Likeness::Words];

    /// Returns the part of a name that is compared.
    pub fn part(self, name: &str) -> String {
        match self {
            Likeness::Exact => name.to_string(),
            Likeness::WithoutNumbers => without_numbers(name),
            Likeness::Words => {
                let is_aside = |letter: char| !letter.is_alphabetic();
                let plain = without_numbers(name);
                match plain.trim_matches(is_aside) {
                    "" => plain,
                    words => words.to_string(),
                }
            }
        }
    }
}

impl RangeName {
    /// Returns true if a range of this name is an iteration.
    pub fn is(&self, name: &str) -> bool {
        self.likeness.part(name) == self.text
    }
}

/// Returns true if a function has this name. The name may be:
///
/// - the full name, or without the types of its parameters
/// - its last words, as in `Model.forward` or `forward`
/// - with its file, as in `forward train.py`
pub fn is_function(symbol: &Symbol, name: &str) -> bool {
    let function = short(&symbol.function);
    let is_named = |name: &str| {
        let before = bare(&function).strip_suffix(bare(name));
        before.is_some_and(|rest| rest.is_empty() || rest.ends_with(['.', ':', ' ']))
    };
    if symbol.function == name || is_named(&short(name)) {
        return true;
    }
    let path = symbol.file.as_ref().or(symbol.module.as_ref());
    let file = path.map(|path| base(path));
    name.rsplit_once(' ')
        .is_some_and(|(name, place)| Some(place) == file && is_named(&short(name)))
}

/// Returns a function as [`short`] shows it, without its parameters and the types of its template.
fn bare(function: &str) -> &str {
    let end = function.find("(...)").or_else(|| {
        let is_empty = function.ends_with("()") && !function.ends_with("operator()");
        is_empty.then(|| function.len() - 2)
    });
    let name = end.map_or(function, |end| &function[..end]);
    if !name.ends_with('>') {
        return name;
    }
    let mut depth = 0_usize;
    for (at, letter) in name.char_indices().rev() {
        match letter {
            '>' => depth += 1,
            '<' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let head = &name[..at];
            // Python's `<module>` and `<locals>` are names, and so are operators.
            let is_name = head.is_empty() || head.ends_with(['.', ':', ' ', '<', '-']);
            return if is_name || head.ends_with("operator") {
                name
            } else {
                head
            };
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushim_recording::symbols::Kind;

    #[test]
    fn sizes_and_names() {
        let size = |bytes| Some(Marker::Size(bytes));
        let name = |name: &str| Some(Marker::Name(name.to_string()));
        for (text, expected) in [
            ("4194304", size(4 << 20)),
            ("4MiB", size(4 << 20)),
            (" 1.5k ", size(1536)),
            ("step", name("step")),
            ("step 12", name("step 12")),
            ("4 steps", name("4 steps")),
            ("0", None),
            ("", None),
            ("  ", None),
        ] {
            assert_eq!(Marker::parse(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn ranges_are_alike() {
        let is = |likeness: Likeness, one: &str, other: &str| {
            RangeName {
                text: likeness.part(one),
                likeness,
            }
            .is(other)
        };
        assert!(is(Likeness::Exact, "step 1", "step 1"));
        assert!(!is(Likeness::Exact, "step 1", "step 2"));
        assert!(is(Likeness::WithoutNumbers, "step 1", "step 22"));
        assert!(!is(Likeness::WithoutNumbers, "step", "step 22"));
        assert!(is(Likeness::Words, "step", "step 22"));
        assert!(is(Likeness::Words, "ProfilerStep", "ProfilerStep#7"));
        assert!(!is(Likeness::Words, "step", "train step 22"));
        assert!(!is(Likeness::Words, "1", "step"));
        assert!(is(Likeness::Words, "1", "2"));
    }

    #[test]
    fn functions_by_their_names() {
        let is = |function: &str, name: &str| {
            let symbol = Symbol {
                function: function.to_string(),
                file: Some("/home/me/train.py".to_string()),
                line: Some(3),
                module: None,
                inlined: false,
                kind: Kind::Python,
                known: Default::default(),
            };
            is_function(&symbol, name)
        };
        for (function, name) in [
            ("Model.forward", "Model.forward"),
            ("Model.forward", "forward"),
            ("net.Model.forward", "Model.forward"),
            ("main.<locals>.step", "step"),
            ("main.<locals>.step", "main.<locals>.step"),
            ("<module>", "<module>"),
            ("step", "step train.py"),
            ("solver::Solver::step(int, float*) const", "step"),
            ("solver::Solver::step(int, float*) const", "Solver::step"),
            ("solver::Solver::step()", "step"),
            ("step(int)", "step(int)"),
            ("void solver::step<std::vector<int>>(int)", "solver::step"),
            ("void solver::step<std::vector<int>>(int)", "step"),
            ("A::operator()", "A::operator()"),
            ("A::operator<(A const&)", "A::operator<(A const&)"),
            ("train::run::step", "run::step"),
        ] {
            assert!(is(function, name), "{function} {name}");
        }
        for (function, name) in [
            ("Model.forward", "Model"),
            ("Model.forward", "ward"),
            ("Model.forward", "forward other.py"),
            ("_forward", "forward"),
            ("main.<locals>.step", "main"),
            ("step(int)", "step(float)x"),
        ] {
            assert!(!is(function, name), "{function} {name}");
        }
    }
}

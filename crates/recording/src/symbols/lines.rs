//! Symbols as people read them.

use super::Symbol;
use crate::Function;

/// Returns one line for each symbol: the function, then its place.
pub fn lines(symbols: &[Symbol]) -> Vec<String> {
    symbols.iter().map(line).collect()
}

/// Returns the function, then the source file and line as far as they are known, or else the
/// module.
pub fn line(symbol: &Symbol) -> String {
    Function::of(symbol).label()
}

/// Returns the last part of a path, of Linux or Windows.
pub fn base(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Returns a C++ function without the types of its parameters, which can be very long.
pub fn short(function: &str) -> String {
    let mut end = function.len();
    // Suffixes that may follow the parameters.
    loop {
        let head = &function[..end];
        let without = [" const", " volatile", " &", " &&", "&", "&&"]
            .iter()
            .find_map(|tail| head.strip_suffix(tail))
            .or_else(|| {
                head.strip_suffix(']')?
                    .rsplit_once(" [")
                    .map(|(head, _)| head)
            });
        match without {
            Some(head) => end = head.len(),
            None => break,
        }
    }
    let (head, tail) = function.split_at(end);
    let Some(begin) = parameters(head) else {
        return function.to_string();
    };
    let name = &head[..begin];
    let nameless = name.is_empty() || name.ends_with("operator") || name.ends_with(['<', ' ', ':']);
    if nameless || &head[begin..] == "()" {
        return function.to_string();
    }
    format!("{name}(...){tail}")
}

/// Returns the place of the bracket that opens the one at the end of the text.
fn parameters(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices().rev() {
        match letter {
            ')' => depth += 1,
            '(' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return text.ends_with(')').then_some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::Kind;

    #[test]
    fn parameters_are_left_out() {
        let expected = [
            ("main", "main"),
            ("f()", "f()"),
            (
                "at::empty_cuda(c10::ArrayRef<long>, std::function<void (int)>)",
                "at::empty_cuda(...)",
            ),
            ("A::get(int) const", "A::get(...) const"),
            ("A::get() const &", "A::get() const &"),
            (
                "(anonymous namespace)::f(int) [clone .cold]",
                "(anonymous namespace)::f(...) [clone .cold]",
            ),
            (
                "run()::{lambda(int)#1}::operator()(int) const",
                "run()::{lambda(int)#1}::operator()(...) const",
            ),
            ("A::operator()", "A::operator()"),
            ("A::(anonymous namespace)", "A::(anonymous namespace)"),
            ("void f<void (int)>(char)", "void f<void (int)>(...)"),
            (
                "<T as core::ops::Fn<(u8,)>>::call",
                "<T as core::ops::Fn<(u8,)>>::call",
            ),
            ("f::{{closure}}", "f::{{closure}}"),
            ("broken)", "broken)"),
            ("(x)", "(x)"),
            (")", ")"),
            ("", ""),
            ("é(ü) const", "é(...) const"),
        ];
        for (long, expected) in expected {
            assert_eq!(short(long), expected);
        }
    }

    #[test]
    fn a_line_names_the_best_place_known() {
        let symbol = |file: Option<&str>, line, module: Option<&str>, kind| Symbol {
            function: "f".to_string(),
            file: file.map(String::from),
            line,
            module: module.map(String::from),
            inlined: false,
            kind,
            known: Default::default(),
        };
        let all = [
            symbol(
                Some("/src/prog.c"),
                Some(12),
                Some("/bin/prog"),
                Kind::Native,
            ),
            symbol(Some("/src/train.py"), None, None, Kind::Python),
            symbol(None, None, Some("/lib/liba.so"), Kind::Native),
            symbol(None, None, None, Kind::Jit),
            symbol(None, None, Some("/lib/liba.so"), Kind::Unknown),
        ];
        assert_eq!(
            lines(&all),
            ["f  prog.c:12", "f  train.py", "f  liba.so", "f", "f"]
        );
    }
}

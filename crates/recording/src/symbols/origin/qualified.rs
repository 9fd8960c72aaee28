//! The name of a C++ function without its type and its parameters.

/// Parts of names in brackets that are no parameters.
const PARTS: [&str; 2] = ["(anonymous namespace)", "{lambda("];

/// Returns `at::native::add` of `at::Tensor at::native::add<float>(at::Tensor const&)`. The name
/// reaches from the last space outside of brackets to the first bracket of parameters or templates.
pub(super) fn qualified(function: &str) -> &str {
    let (mut begin, mut depth) = (0, 0_usize);
    let mut at = 0;
    while let Some(rest) = function.get(at..) {
        let Some(letter) = rest.chars().next() else {
            break;
        };
        if let Some(part) = PARTS.iter().find(|part| rest.starts_with(**part)) {
            // `{lambda(int)#1}` is a part up to its end.
            at += match part.ends_with(')') {
                true => part.len(),
                false => rest.find('}').map_or(rest.len(), |end| end + 1),
            };
            continue;
        }
        let is_operator = || {
            function
                .get(..at)
                .is_some_and(|head| head.ends_with("operator"))
        };
        match letter {
            '<' if !is_operator() => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && !is_operator() => {
                return function.get(begin..at).unwrap_or(function);
            }
            ' ' if depth == 0 => begin = at + 1,
            _ => {}
        }
        at += letter.len_utf8();
    }
    function.get(begin..).unwrap_or(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_parameters_are_left_out() {
        for (function, name) in [
            ("main", "main"),
            ("at::empty_cuda(c10::ArrayRef<long>, int)", "at::empty_cuda"),
            ("at::Tensor mine::f(at::Tensor const&)", "mine::f"),
            ("std::tuple<at::Tensor, at::Tensor> mine::f(int)", "mine::f"),
            (
                "at::(anonymous namespace)::wrap(at::Tensor)",
                "at::(anonymous namespace)::wrap",
            ),
            (
                "void (anonymous namespace)::f(int)",
                "(anonymous namespace)::f",
            ),
            ("run()::{lambda(int)#1}::operator()(int) const", "run"),
            ("void f<void (int)>(char)", "f<void (int)>"),
            ("", ""),
            ("é ü(", "ü"),
        ] {
            assert_eq!(qualified(function), name, "{function}");
        }
    }
}

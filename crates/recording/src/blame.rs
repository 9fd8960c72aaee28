//! The function of a stack that a user would change.

use super::Frame;
use crate::symbols::{Kind, Symbol};

/// Returns the functions of a stack, innermost first.
pub fn calls(stack: &[Frame]) -> impl Iterator<Item = &Symbol> {
    stack.iter().flat_map(|frame| match frame {
        Frame::Call(symbols) => &symbols[..],
        Frame::Range(_) => &[],
    })
}

/// Returns the names of the open ranges of a stack, innermost first.
pub fn ranges(stack: &[Frame]) -> Vec<String> {
    let name = |frame: &Frame| match frame {
        Frame::Range(name) => Some(name.clone()),
        Frame::Call(_) => None,
    };
    stack.iter().filter_map(name).collect()
}

/// Returns the function responsible for a stack: the innermost of the functions nearest to the
/// user, Python's before native ones. Returns `None` for a stack without frames.
pub fn blame(stack: &[Frame]) -> Option<&Symbol> {
    calls(stack).min_by_key(|symbol| (symbol.origin(), symbol.kind != Kind::Python))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::CallSite;

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
            known: Default::default(),
        }]))
    }

    #[test]
    fn the_call_site_of_a_helper() {
        let at = |place: &str| format!("/home/me/{place}");
        let python = |function: &str| call(Kind::Python, function, &at("train.py"));
        let packages = "/usr/lib/python3.12/site-packages/torch/nn/modules";
        let wrapped = call(
            Kind::Python,
            "Module._call_impl",
            &format!("{packages}/module.py"),
        );
        let linear = call(
            Kind::Python,
            "Linear.forward",
            &format!("{packages}/linear.py"),
        );
        let operator = call(
            Kind::Native,
            "at::_ops::linear::call(at::Tensor const&)",
            "/x/libtorch.so",
        );
        let site = |stack: &[&Frame]| {
            let stack: Vec<Frame> = stack.iter().map(|frame| (*frame).clone()).collect();
            CallSite::new(&stack)
        };
        let (copy, forward, file) = (python("copy"), python("Leaky.forward"), python("<module>"));
        let found = site(&[&operator, &linear, &copy, &copy, &wrapped, &forward, &file]);
        assert_eq!(found.in_a_sentence(), "`copy train.py`");
        let told = "copy train.py, called by Leaky.forward train.py";
        assert_eq!(found.with_caller().as_deref(), Some(told));
        assert_eq!(found.place().map(|place| place.name.as_str()), Some("copy"));
        let frames: Vec<&str> = found
            .frames
            .iter()
            .map(|frame| frame.name.as_str())
            .collect();
        assert_eq!(
            frames,
            [
                "Linear.forward",
                "copy",
                "copy",
                "Leaky.forward",
                "<module>"
            ]
        );
        assert_eq!(
            (found.frames_hidden, found.operator.as_deref()),
            (2, Some("linear"))
        );
        // The body of a file calls everything.
        assert_eq!(site(&[&copy, &file]).in_a_sentence(), "`copy train.py`");
        // Without a function of the user: a library, or else any function.
        let library = site(&[&operator, &linear, &wrapped]);
        assert_eq!(
            (library.in_a_sentence().as_str(), library.place()),
            ("`Linear.forward linear.py`", None)
        );
        let below = site(&[&operator, &wrapped]);
        assert_eq!((below.frames.len(), below.frames_hidden), (2, 0));
        assert_eq!(site(&[]), CallSite::default());
        assert_eq!(site(&[]).with_caller(), None);
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

use std::rc::Rc;

use super::*;
use gpushim_trace::{Class, Event, Layer};

const MODULE: &str = "/lib/python3/site-packages/torch/nn/modules/module.py";

/// Stacks by number, each a list of calls from the outermost on: function, file, line.
struct Stacks(Vec<Vec<(&'static str, &'static str, u32)>>);

impl Names for Stacks {
    fn stack(&mut self, id: u32) -> Rc<[Frame]> {
        let calls = self.0.get(id as usize - 1).cloned().unwrap_or_default();
        let frame = |(function, file, line): (&str, &str, u32)| {
            Frame::Call(Rc::new([Symbol {
                function: function.to_string(),
                file: Some(file.to_string()),
                line: Some(line),
                module: None,
                inlined: false,
                kind: Kind::Python,
                known: Default::default(),
            }]))
        };
        calls.into_iter().rev().map(frame).collect()
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One repetition: allocations (a positive size) and frees (a negative one), each with the number of its stack.
type Turn<'a> = &'a [(i64, u32)];

fn judged(turn: Turn, turns: usize, stacks: Stacks) -> Certainty {
    let focus = Focus {
        layer: Layer::Tensor,
        device: None,
    };
    let mut evidence = Evidence::new(focus, 0);
    let mut ticket = 0;
    for _ in 0..=turns {
        evidence.begin();
        for (size, stack) in turn {
            let kind = match size {
                0.. => EventKind::TensorAlloc,
                _ => EventKind::TensorFree,
            };
            ticket += 1;
            let event = Event {
                size: size.unsigned_abs(),
                stack: *stack,
                device: 0,
                ..Event::new(kind, Class::Tensor)
            };
            let record = Record {
                ticket,
                ns: ticket * 1000,
                event,
            };
            evidence.feed(&record, u64::from);
        }
    }
    let mut stacks = stacks;
    evidence.judge(&By::Stack(1), &Kept::default(), &mut stacks)
}

/// A training loop in `main`, which keeps something of each turn.
fn training() -> Stacks {
    let main = ("main", "train.py", 0);
    Stacks(vec![
        vec![
            (main.0, main.1, 10),
            ("_call_impl", MODULE, 1),
            ("forward", "net.py", 5),
        ],
        vec![(main.0, main.1, 11), ("backward", "/torch/_tensor.py", 9)],
        vec![(main.0, main.1, 12), ("keep", "train.py", 3)],
    ])
}

#[test]
fn turns_of_a_loop_are_iterations_even_if_nothing_falls_back() {
    let keeps_all = judged(&[(100, 1), (50, 2), (10, 3)], 10, training());
    assert!(keeps_all.sure, "{}", keeps_all.why);
    assert!(keeps_all.why.contains("`main`"), "{}", keeps_all.why);
    let falls = judged(&[(100, 1), (50, 2), (-150, 2), (10, 3)], 10, training());
    assert!(falls.sure, "{}", falls.why);
}

#[test]
fn one_call_in_a_loop_is_an_iteration_unless_it_makes_a_model() {
    let one = |function| {
        Stacks(vec![vec![
            ("main", "train.py", 10),
            (function, "train.py", 20),
        ]])
    };
    let turn = [(100, 1), (50, 1), (-50, 1)];
    let kept = judged(&turn, 10, one("train"));
    assert!(kept.sure && kept.why.contains("`train`"), "{}", kept.why);
    assert!(!judged(&turn, 10, one("__init__")).sure);
    // A list of tensors, made one after the other, may be a model.
    let made = judged(&[(100, 1)], 10, one("train"));
    assert!(
        !made.sure && made.why.contains("a model is made"),
        "{}",
        made.why
    );
}

#[test]
fn layers_of_one_pass_are_none() {
    let layer = |function| {
        vec![
            ("main", "train.py", 10),
            ("_call_impl", MODULE, 1),
            ("forward", "net.py", 5),
            ("_call_impl", MODULE, 1),
            (function, "layer.py", 7),
        ]
    };
    let stacks = Stacks(vec![layer("attention"), layer("linear")]);
    let found = judged(&[(100, 1), (100, 2)], 32, stacks);
    assert!(
        !found.sure && found.why.contains("_call_impl"),
        "{}",
        found.why
    );
}

#[test]
fn parts_of_one_call_are_none() {
    // What the optimizer does for each of its parameters, in a loop that does other things as well.
    let mut stacks = training();
    stacks.0.push(vec![
        ("main", "train.py", 13),
        ("update", "mine.py", 4),
        ("first", "mine.py", 8),
    ]);
    stacks.0.push(vec![
        ("main", "train.py", 13),
        ("update", "mine.py", 5),
        ("second", "mine.py", 9),
    ]);
    let focus = Focus {
        layer: Layer::Tensor,
        device: None,
    };
    let mut evidence = Evidence::new(focus, 0);
    let mut ticket = 0;
    let mut feed = |evidence: &mut Evidence, stack: u32| {
        ticket += 1;
        let event = Event {
            size: 100,
            stack,
            device: 0,
            ..Event::new(EventKind::TensorAlloc, Class::Tensor)
        };
        let record = Record {
            ticket,
            ns: ticket,
            event,
        };
        evidence.feed(&record, u64::from);
    };
    for _ in 0..2 {
        for parameter in 0..50 {
            evidence.begin();
            feed(&mut evidence, 4);
            feed(&mut evidence, 5);
            if parameter == 49 {
                feed(&mut evidence, 1);
                feed(&mut evidence, 2);
            }
        }
    }
    let found = evidence.judge(&By::Stack(4), &Kept::default(), &mut stacks);
    assert!(
        !found.sure && found.why.contains("one call"),
        "{}",
        found.why
    );
}

#[test]
fn without_stacks_most_of_what_is_taken_must_come_back() {
    let none = || Stacks(Vec::new());
    assert!(judged(&[(100, 0), (50, 0), (-140, 0)], 10, none()).sure);
    let rises = judged(&[(100, 0), (50, 0), (-20, 0)], 10, none());
    assert!(
        !rises.sure && rises.why.contains("fall back"),
        "{}",
        rises.why
    );
}

#[test]
fn a_range_that_is_called_a_step_is_sure() {
    let focus = Focus {
        layer: Layer::Tensor,
        device: None,
    };
    let by = |name: &str| By::Range(name.to_string());
    let judge = |name| {
        Evidence::new(focus, 0)
            .judge(&by(name), &Kept::default(), &mut Stacks(Vec::new()))
            .sure
    };
    assert!(judge("train step #"));
    assert!(!judge("block #"));
}

#[test]
fn repetitions_in_which_nothing_is_allocated() {
    assert!(!judged(&[(-8, 1)], 6, Stacks(Vec::new())).sure);
}

#[test]
fn sizes_of_a_damaged_trace() {
    // A repetition begins at the lowest level that can be counted and rises to the highest.
    let huge = i64::MAX;
    let turn = [(huge, 1), (huge, 1), (-huge, 1), (-huge, 1), (-huge, 1)];
    assert!(judged(&turn, 6, Stacks(Vec::new())).sure);
}

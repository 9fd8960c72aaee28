use std::rc::Rc;

use super::*;
use crate::ledger::sample::{ACTIVATIONS, GRADIENTS, STATE, Training};
use crate::ledger::{Focus, Moment};
use crate::loops::{Follow, Found};
use crate::peak::find::Peak;
use crate::recording::{Frame, read};
use crate::replay::planted::Planted;
use crate::report::Report;
use crate::symbols::{Kind, Symbol};
use gpushim_trace::{StackNode, Trace};

/// Names of the functions that allocate in a [`Training`].
struct Named<'a>(&'a Trace);

impl Names for Named<'_> {
    fn stack(&mut self, id: u32) -> Rc<[Frame]> {
        let name = |node| match node {
            StackNode::Frame(address) if address >> 20 == STATE >> 20 => "Adam.step",
            StackNode::Frame(address) if address >> 20 == GRADIENTS >> 20 => "Tensor.backward",
            StackNode::Frame(address) if address >> 20 == ACTIVATIONS >> 20 => "Linear.forward",
            _ => "main",
        };
        let symbol = |node| Symbol {
            function: name(node).to_string(),
            file: None,
            line: None,
            module: None,
            inlined: false,
            kind: Kind::Python,
            known: Default::default(),
        };
        let stack = self.0.stack(id);
        stack
            .map(|node| Frame::Call(Rc::new([symbol(node)])))
            .collect()
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

fn parts(how: &Training) -> Option<Vec<Part>> {
    let (_dir, trace) = how.record();
    let focus = Focus::of(&trace, None);
    let peak = Peak::at(&trace, focus, Moment::Peak);
    let loops = Found::of(&trace, focus, None);
    let moment = peak.ticket;
    let mut follow = Follow::new(&trace, focus, &loops, &[moment], Some(moment));
    read(&trace, &mut [&mut follow]);
    let found = follow.finish();
    composition(
        &trace,
        &mut Named(&trace),
        found.iterations.as_ref(),
        found.journal.as_ref()?,
        found.live_at.first()?,
    )
    .map(|found| found.parts)
}

/// Live memory after the last gradient is made: all parameters, state and gradients, and the input
/// of the first layer. This input is not needed afterwards.
#[test]
fn the_peak_of_a_training_is_told_apart() {
    for (ranges, stacks, takes_down) in [
        (true, true, false),
        (true, false, true),
        (false, true, true),
    ] {
        let how = Training {
            ranges,
            stacks,
            takes_down,
            ..Training::default()
        };
        let sum = |first: u64, more: u64| (0..how.layers).map(|layer| first + layer * more).sum();
        let expected: [(Category, u64, u64); 4] = [
            (Category::Parameters, sum(4 << 20, 4096), 6),
            (Category::Gradients, sum(4 << 20, 4096), 6),
            (Category::OptimizerState, sum(8 << 20, 8192), 6),
            (Category::Activations, 1_200_000, 1),
        ];
        let expected = expected.map(|(category, bytes, blocks)| Part {
            category,
            bytes,
            blocks,
        });
        assert_eq!(parts(&how).as_deref(), Some(&expected[..]), "{how:?}");
    }
}

/// The run has one function and no ranges. The first rise of memory is an iteration like the
/// others, so that not even parameters are clear.
#[test]
fn what_cannot_be_judged_is_not_told() {
    let how = Training {
        one_function: true,
        varies: true,
        steps: 40,
        layers: 9,
        ..Training::default()
    };
    assert_eq!(parts(&how), None);
}

/// A single step is no iteration, but its phases distinguish its blocks.
#[test]
fn a_single_pass_is_told_apart() {
    let how = Training {
        ranges: true,
        stacks: true,
        steps: 1,
        ..Training::default()
    };
    let found = parts(&how).unwrap();
    let of = |category| found.iter().find(|part| part.category == category);
    let bytes = |category| of(category).map(|part| part.bytes);
    let parameters = (0..how.layers).map(|layer| (4 << 20) + layer * 4096).sum();
    assert_eq!(bytes(Category::Parameters), Some(parameters), "{found:?}");
    assert_eq!(bytes(Category::Gradients), Some(parameters), "{found:?}");
}

/// Returns the parts of a step of a network of ten weights, recorded from before its first step or
/// after it.
fn step(with_state: bool) -> Vec<Part> {
    const MIB: u64 = 1 << 20;
    let mut run = Planted::new(8 << 30);
    let take = |run: &mut Planted, function, each: u64, number: usize| -> Vec<_> {
        // A line for each weight: one repeated line would be a loop of its own.
        let block = |weight| {
            run.line = Some(weight);
            run.take(function, 0, each * MIB).expect("memory")
        };
        (0..number as u64).map(block).collect()
    };
    take(&mut run, "load", 10, 10);
    if with_state {
        take(&mut run, "AdamW.step", 20, 10);
    }
    // The history begins here.
    run.forget();
    let kept = take(&mut run, "forward", 15, 10);
    take(&mut run, "backward", 10, 10);
    kept.into_iter().for_each(|block| run.free(block));
    if !with_state {
        take(&mut run, "AdamW.step", 20, 10);
    }
    let moment = take(&mut run, "AdamW.step", 64, 1);
    moment.into_iter().for_each(|block| run.free(block));
    let report = Report::of(&run.snapshot(), None);
    report.peaks[0].composition.clone().expect("its parts")
}

#[test]
fn a_history_that_begins_in_the_middle_is_told_apart() {
    for with_state in [false, true] {
        let parts = step(with_state);
        let bytes = |category| {
            let its = parts.iter().find(|part| part.category == category);
            its.map_or(0, |part| part.bytes >> 20)
        };
        let told = [
            bytes(Category::Parameters),
            bytes(Category::Gradients),
            bytes(Category::OptimizerState),
            bytes(Category::Temporary),
            bytes(Category::Activations),
        ];
        // With the state from before, most is live after the gradients are made.
        let expected = match with_state {
            false => [100, 100, 200, 64, 0],
            true => [100, 100, 200, 0, 150],
        };
        assert_eq!(told, expected, "{parts:?}");
    }
}

#[test]
fn names_decide_where_they_say_what_a_block_is_for() {
    let of = |category: Category, kept| {
        let category = category.of_owner(kept);
        (category, category.rests_on_life(kept))
    };
    for (judged, kept, expected) in [
        (
            Category::Unknown,
            Some(Kept::Buffer),
            (Category::Parameters, false),
        ),
        (
            Category::Temporary,
            Some(Kept::Gradient),
            (Category::Gradients, false),
        ),
        (
            Category::Parameters,
            Some(Kept::Named),
            (Category::Named, false),
        ),
        (
            Category::Unknown,
            Some(Kept::Graph),
            (Category::Activations, false),
        ),
        (
            Category::Activations,
            Some(Kept::Named),
            (Category::Activations, true),
        ),
        (Category::Parameters, None, (Category::Parameters, true)),
        (
            Category::Gradients,
            Some(Kept::Native),
            (Category::Unknown, false),
        ),
        (Category::Unknown, None, (Category::Unknown, false)),
    ] {
        assert_eq!(of(judged, kept), expected, "{judged:?} {kept:?}");
    }
}

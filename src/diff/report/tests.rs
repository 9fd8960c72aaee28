use super::*;
use crate::output::answer::Shown;
use crate::recording::Function;
use crate::symbols::Kind;

fn run(of: &'static str) -> Subject {
    Subject {
        trace: "a.trace".to_string(),
        of,
        device: None,
        wrapped: false,
        one_moment: false,
    }
}

/// Figures of a run with a peak of 1000 bytes, the phase `forward` and the stack `copy`.
fn figures() -> MemoryFigures {
    MemoryFigures {
        peak: 1000,
        phases: vec![Figure::of("forward", 500)],
        holders: vec![held("copy", 200), Figure::of("no stack recorded", 100)],
        ..MemoryFigures::default()
    }
}

fn held(name: &str, bytes: u64) -> Figure {
    Figure {
        function: Some(Function {
            name: name.to_string(),
            file: None,
            line: None,
            module: None,
            kind: Kind::Python,
        }),
        ..Figure::of(name, bytes)
    }
}

fn compared(before: MemoryFigures, after: MemoryFigures, max_growth: f64) -> DiffReport {
    let runs = [run("tensors"), run("tensors")];
    DiffReport::of(runs, &[before, after], max_growth)
}

/// Regressions of a run in which one figure is another.
fn found(change: impl Fn(&mut MemoryFigures), max_growth: f64) -> Vec<String> {
    let mut after = figures();
    change(&mut after);
    compared(figures(), after, max_growth).regressions
}

#[test]
fn only_more_memory_is_a_regression() {
    assert_eq!(found(|run| run.peak = 1011, 0.01), ["peak"]);
    assert!(found(|run| run.peak = 1010, 0.01).is_empty());
    assert!(found(|run| run.peak = 500, 0.01).is_empty());
    assert!(found(|run| run.peak = 1040, 0.05).is_empty());
}

#[test]
fn a_phase_or_a_stack_that_grows_by_more_than_a_part_of_the_peak_is_a_regression() {
    let phase = |bytes| found(|run| run.phases[0].bytes = bytes, 0.01);
    assert_eq!(phase(511), ["forward"]);
    assert!(phase(510).is_empty());
    assert!(phase(10).is_empty());
    let stack = |bytes| found(|run| run.holders[0].bytes = bytes, 0.01);
    assert_eq!(stack(211), ["copy"]);
    assert!(stack(210).is_empty());
    assert!(stack(10).is_empty());
    let both = found(|run| (run.peak, run.holders[0].bytes) = (1100, 300), 0.01);
    assert_eq!(both, ["peak", "copy"]);
}

#[test]
fn what_one_run_lacks_is_no_regression() {
    let mut lacks = figures();
    (lacks.phases, lacks.holders) = (Vec::new(), Vec::new());
    assert!(
        compared(lacks.clone(), figures(), 0.01)
            .regressions
            .is_empty()
    );
    assert!(compared(figures(), lacks, 0.01).regressions.is_empty());
    let none = MemoryFigures::default();
    assert!(compared(none, figures(), 0.01).regressions.is_empty());
    // Memory without a stack may have one in the other run.
    assert!(found(|run| run.holders[1].bytes = 900, 0.01).is_empty());
}

#[test]
fn a_stack_of_one_run_is_absent_in_the_other() {
    let mut after = figures();
    after.holders.push(held("average", 1 << 10));
    let text = Shown(&compared(figures(), after, 0.01), 10).to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("— 1.0 KiB — average"), "{text}");
    assert!(!text.contains(" 0 B"), "{text}");
}

#[test]
fn phases_of_one_run_have_a_sentence_and_no_rows() {
    let mut after = figures();
    after.phases = vec![Figure::of("forward", 500)];
    after.phases.push(Figure::of(ITERATION, 600));
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    after.phases.extend(names.map(|name| Figure::of(name, 1)));
    let diff = compared(figures(), after, 0.01);
    assert_eq!(
        diff.not_compared,
        ["Only the run after has the phases a, b, c, d, e, 2 more: these are not compared."]
    );
    let text = Shown(&diff, 10).to_string();
    assert!(!text.contains('—'), "{text}");
    assert!(text.contains("forward, peak above entry"), "{text}");
}

#[test]
fn recordings_of_different_memory_are_no_regression() {
    let mut after = figures();
    after.peak = 2000;
    let runs = [run("tensors"), run("memory")];
    let diff = DiffReport::of(runs, &[figures(), after], 0.01);
    assert!(diff.regressions.is_empty());
}

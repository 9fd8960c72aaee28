//! Programs of nested loops: planted leaks must be found at their level, clean runs must raise no
//! alarm.

mod programs;
mod run;

use programs::{Clean, Leak, Shape};
use run::{Found, Run};

/// Programs of each kind and shape.
const SEEDS: u64 = 40;

/// Tells whether a planted leak is named at its level, with its place and size.
fn is_found(shape: Shape, leak: Leak, passes: u64, seed: u64) -> (bool, String) {
    let size = 1_u64 << (10 + seed % 17);
    let mut run = Run::new(seed);
    let planted = run.leaking(shape, leak, passes, size);
    let found = run.analyse();
    let is_right = found.as_ref().is_some_and(|found: &Found| {
        let near = (found.rate - planted.rate).abs() <= 0.02 * planted.rate;
        near && found.count.abs_diff(planted.passes) <= 1 && found.line == planted.line
    });
    (
        is_right,
        format!("{shape:?} {leak:?} {passes} passes, seed {seed}: {planted:?} {found:?}"),
    )
}

fn share(
    shapes: &[Shape],
    leaks: &[Leak],
    passes: impl Fn(u64) -> u64,
) -> (usize, usize, Vec<String>) {
    let (mut all, mut hit, mut missed) = (0, 0, Vec::new());
    for shape in shapes {
        for leak in leaks {
            for seed in 0..SEEDS {
                let (is_right, what) = is_found(*shape, *leak, passes(seed), seed);
                all += 1;
                hit += usize::from(is_right);
                missed.extend((!is_right).then_some(what));
            }
        }
    }
    (hit, all, missed)
}

#[test]
fn leaks_are_found_at_their_level() {
    let (hit, all, missed) = share(&Shape::ALL, &Leak::ALL, |seed| 12 + seed % 40);
    assert!(
        hit * 100 >= all * 95,
        "{hit} of {all}\n{}",
        missed.join("\n")
    );
}

#[test]
fn a_few_passes_name_the_candidate() {
    let (hit, all, missed) = share(&Shape::ALL, &[Leak::Kept, Leak::Anew], |seed| 3 + seed % 6);
    assert!(
        hit * 100 >= all * 95,
        "{hit} of {all}\n{}",
        missed.join("\n")
    );
}

#[test]
fn clean_programs_raise_no_alarm() {
    let mut alarms = Vec::new();
    let mut all = 0;
    for shape in Shape::ALL {
        for clean in Clean::ALL {
            for seed in 0..SEEDS {
                let mut run = Run::new(seed);
                run.clean(shape, clean, 12 + seed % 40);
                let found = run.analyse();
                all += 1;
                alarms.extend(
                    found.map(|found| format!("{shape:?} {clean:?} seed {seed}: {found:?}")),
                );
            }
        }
    }
    assert!(
        alarms.is_empty(),
        "{} of {all}\n{}",
        alarms.len(),
        alarms.join("\n")
    );
}

/// The work for an event does not grow with the length of a run, nor does the memory.
#[test]
fn a_long_run_is_kept_in_bounded_space() {
    let mut run = Run::new(1);
    run.clean(Shape::Training, Clean::Window, 30_000);
    let loops = run.loops();
    let kept: usize = loops.iter().map(|one| one.starts.len()).sum();
    assert!(loops.iter().any(|one| one.count >= 30_000));
    assert!(kept < 1 << 18, "{kept} of {} loops", loops.len());
}

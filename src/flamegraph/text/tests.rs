use super::*;
use crate::ledger::sample::Training;
use crate::output::answer::Shown;

fn report(weight: Weight) -> FlameReport {
    let how = Training {
        ranges: true,
        ..Training::default()
    };
    let (_dir, trace) = how.record();
    let focus = Focus::of(&trace, None);
    FlameReport::of(&trace, focus, weight, false, &mut *trace.names())
}

#[test]
fn stacks_from_the_outermost_on() {
    let total = report(Weight::Total);
    let lines = folded_lines(std::slice::from_ref(&total));
    let sum: u64 = lines
        .iter()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(sum, total.bytes);
    // Steps are one range, whatever their numbers.
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("[step #];[forward];")),
        "{lines:#?}"
    );
    assert!(lines.len() < 40, "{lines:#?}");
    let two = folded_lines(&[total.clone(), total.clone()]);
    assert_eq!(two.len(), 2 * lines.len());
    assert!(two[0].contains("a.trace;"));
    let text = Shown(&total, 3).to_string();
    assert!(text.contains(" allocated in all\n"), "{text}");
    assert!(text.lines().count() <= 9, "{text}");
}

#[test]
fn a_picture_or_a_sentence() {
    let live = report(Weight::Live);
    let svg = flame_svg(&[live]).unwrap();
    assert!(svg.starts_with("<?xml") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("bytes live at the end") && svg.contains("prefers-color-scheme:dark"));
    assert!(svg.contains("[step #]"));
    let mut nothing = report(Weight::Live);
    nothing.stacks.clear();
    let error = flame_svg(&[nothing]).unwrap_err().to_string();
    assert_eq!(
        error,
        "draw a flame graph: no bytes were live at the end; choose others with --of"
    );
}

use super::*;
use crate::output::style::letters;
use crate::replay::planted::Planted;

const MIB: u64 = 1 << 20;
const LINES: usize = 12;

#[test]
fn a_request_of_many_holders_in_twelve_lines() {
    let mut run = Planted::new(1 << 30);
    let long =
        "a_function_with_a_name_that_takes_most_of_a_line_of_ninety_letters_and_more_than_that";
    for function in ["load", "forward", long, "optimizer", "other"] {
        run.take(function, 0, 150 * MIB).expect("memory");
    }
    assert!(run.take(long, 0, 600 * MIB).is_none());
    let snapshot = run.snapshot();
    let brief = Brief::of(&snapshot, Focus::of(&snapshot, None), None).expect("a request");
    let lines = &brief.lines;
    assert!((8..=LINES).contains(&lines.len()), "{lines:#?}");
    let (last, rest) = lines.split_last().expect("lines");
    assert!(last.starts_with("  more   gpushim oom "), "{last}");
    for line in rest {
        assert!(letters(line) <= WIDTH, "{line}");
    }
    assert!(
        lines[0].starts_with("gpushim: out of memory: a_function"),
        "{lines:#?}"
    );
    let with = |label: &str| lines.iter().filter(|line| line.starts_with(label)).count();
    for label in [
        "  cause  ",
        "  held   150.0 MiB ",
        "  had    ",
        "  fix    ",
        "  fits   with ",
    ] {
        assert_eq!(with(label), 1, "{label}: {lines:#?}");
    }
    assert_eq!(with("         150.0 MiB "), 2, "three holders: {lines:#?}");
    assert!(
        brief.key.starts_with("this process, a_function"),
        "{}",
        brief.key
    );
}

#[test]
fn without_a_request_that_failed_it_says_so() {
    let mut run = Planted::new(1 << 30);
    run.take("load", 0, 100 * MIB).expect("memory");
    let snapshot = run.snapshot();
    assert!(Brief::of(&snapshot, Focus::of(&snapshot, None), None).is_none());
    assert!(none(&snapshot).contains("no request failed for lack of memory"));
}

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
    for line in lines.iter().take(lines.len() - 1) {
        assert!(letters(line) <= WIDTH, "{line}");
    }
    insta::assert_snapshot!(lines.join("\n"), @"
    gpushim: out of memory: a_function_with_a_name_that_takes_most_o… train.py:8943 asked for
    600.0 MiB of gpu 0
      cause  This process itself used the memory: what was free and cached is 326.0 MiB less
             than the request.
      held   150.0 MiB (20.0 %), 1 block: load train.py:416, called by main train.py:423
             150.0 MiB (20.0 %), 1 block: forward train.py:757, called by main train.py:764
             150.0 MiB (20.0 %), 1 block: a_function_with_a_name_that_takes_most_o…
      had    274.0 MiB free; the framework held 750.0 MiB, 750.0 MiB in use
      fix    Ask for 326.0 MiB less, as with a smaller batch, or free some of the 150.0 MiB of
             `load train.py:416`.
      fits   with 326.0 MiB more
      more   gpushim oom planted.pickle
    ");
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

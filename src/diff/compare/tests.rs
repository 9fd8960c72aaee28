use super::*;

fn report(peak: [Option<u64>; 2], phase: [Option<u64>; 2], max_growth: f64) -> DiffReport {
    let run = |of| Subject {
        trace: "a.trace".to_string(),
        of,
        device: None,
        wrapped: false,
        one_moment: false,
    };
    let mut diff = DiffReport {
        runs: [run("tensors"), run("tensors")],
        peak,
        iterations: [0; 2],
        iteration_ns: [0; 2],
        phases: vec![Change {
            name: "forward".to_string(),
            function: None,
            values: phase,
        }],
        holders: Vec::new(),
        owners: Vec::new(),
        not_compared: Vec::new(),
        max_growth,
        regressions: Vec::new(),
    };
    diff.regressions = diff.regressions();
    diff
}

#[test]
fn only_more_memory_is_a_regression() {
    let same = [Some(500); 2];
    let found = |peak, phase, growth| report(peak, phase, growth).regressions;
    assert_eq!(found([Some(1000), Some(1011)], same, 0.01), ["peak"]);
    assert!(found([Some(1000), Some(1010)], same, 0.01).is_empty());
    assert!(found([Some(1000), Some(500)], same, 0.01).is_empty());
    assert!(found([Some(1000), Some(1040)], same, 0.05).is_empty());
    assert_eq!(
        found([Some(1000); 2], [Some(10), Some(50)], 0.01),
        ["forward"]
    );
    assert!(found([Some(1000); 2], [Some(50), Some(10)], 0.01).is_empty());
    // A figure that one run lacks is neither more nor less.
    assert!(found([Some(1000); 2], [None, Some(800)], 0.01).is_empty());
    assert!(found([None, Some(1000)], same, 0.01).is_empty());
}

#[test]
fn what_is_absent_is_not_zero() {
    let diff = report([Some(1 << 20); 2], [Some(1 << 10), None], 0.01);
    let text = crate::output::answer::Shown(&diff, 10).to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("1.0 KiB — — forward"), "{text}");
    assert!(!text.contains("0 B"), "{text}");
}

#[test]
fn recordings_of_different_memory_are_no_regression() {
    let mut diff = report([Some(1), Some(1000)], [None; 2], 0.01);
    diff.runs[1].of = "memory";
    assert!(diff.regressions().is_empty());
}

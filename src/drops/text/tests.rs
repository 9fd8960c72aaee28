use super::*;
use crate::drops::fall::Fallen;
use crate::output::answer::Shown;
use crate::recording::Function;
use crate::symbols::Kind;

fn told(lasting: Option<u64>, times: u64) -> DropGroup {
    let mib = |count: u64| count << 20;
    let holder = Holder {
        who: CallSite {
            function: Some(Function {
                name: "fill".to_string(),
                file: Some("/me/train.py".to_string()),
                line: Some(7),
                module: None,
                kind: Kind::Python,
            }),
            ..CallSite::default()
        },
        blocks: 8,
        bytes: mib(24),
        per_iteration: None,
        share: 0.8,
        oldest_ns: Some(1),
        made_before: false,
    };
    DropGroup {
        drop: Drop {
            cause: Cause::Freed,
            times,
            iterations: times,
            latest: None,
            first_ns: 1_200_000_000,
            largest: Fallen {
                ns: 1_200_000_000,
                took_ns: 5_000,
                iteration: Some(20),
                from: mib(42),
                to: mib(12),
                below: mib(24),
                lasting,
                thread: 7,
                freed_by: 0,
                holders: Vec::new(),
            },
        },
        bytes: mib(30),
        each_iteration: times > 1,
        why: why(&Cause::Freed, None),
        freed: None,
        of: vec![holder],
    }
}

fn report(drops: Vec<DropGroup>) -> DropsReport {
    let mut report = DropsReport {
        subject: Subject {
            trace: "a.trace".to_string(),
            of: "tensors",
            device: None,
            wrapped: false,
            one_moment: false,
        },
        peak: 50 << 20,
        least: 5 << 20,
        iterations: 40,
        drops,
        verdict: String::new(),
    };
    report.verdict = report.sentences();
    report
}

#[test]
fn the_verdict_names_what_went_and_the_rest_is_a_table() {
    let found = report(vec![told(Some(24 << 20), 1), told(None, 40)]);
    assert!(found.is_found());
    let text = Shown(&found, 10).to_string();
    let verdict = "At 1.20 s, in iteration 20, memory fell by 30.0 MiB to 12.0 MiB and stays 24.0 MiB lower: freed \
                   by the program; 24.0 MiB in 8 blocks were of `fill train.py:7`.";
    assert_eq!(text.lines().nth(1), Some(verdict), "{text}");
    let lines: Vec<&str> = text.lines().skip(4).collect();
    assert!(
        lines[0].contains("5.0 µs  once            yes    freed by"),
        "{text}"
    );
    assert!(
        lines[1].contains("5.0 µs  each iteration         freed by"),
        "{text}"
    );
}

#[test]
fn silent_where_all_comes_back() {
    let found = report(vec![told(None, 40)]);
    assert!(!found.is_found());
    assert!(
        found.verdict.starts_with("No drop lasts"),
        "{}",
        found.verdict
    );
    let verdict = report(Vec::new()).verdict;
    assert_eq!(verdict, "Memory never falls by 5.0 MiB at once.");
}

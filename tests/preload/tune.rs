//! `gpushim tune` against the shim itself: a run with the advised settings holds the predicted
//! memory.

use std::time::Duration;

use gpushim_command::ledger::Focus;
use gpushim_command::tune::{Advice, Options, Recorded, tune};

use crate::replay::open;
use crate::support::{Outcome, Run, program};

fn recorded(outcome: &Outcome) -> Recorded {
    let trace = open(outcome);
    Recorded::of(&*trace, Focus::of(&*trace, None), None)
}

/// Records under one policy, and runs again with the advised settings.
///
/// Returns the settings, and the relative error of the predicted peak.
fn predicted(family: &str, policy: &str, within: f64) -> (String, f64) {
    let run = Run::new(program("requests")).args([family, "40"]);
    let first = recorded(&run.clone().env("GPUSHIM_POLICY", policy).shim());
    let options = Options {
        within,
        limit: None,
        budget: Duration::from_secs(3600),
        threads: 2,
    };
    let tuned = tune(&[first], &options, &|_| {});
    let Advice {
        chosen,
        environment,
        ..
    } = tuned.advice.expect("advice");
    let peak = tuned.tried[chosen].sum.peak_reserved as f64;
    let variables = environment.set.iter();
    let again = variables
        .fold(run, |run, (name, value)| run.env(name, value))
        .shim();
    let held = recorded(&again).devices[&0].recorded_reserved();
    let held = held.expect("what was held") as f64;
    (environment.line(), (held - peak).abs() / peak)
}

#[test]
fn advice_carried_out_holds_what_was_predicted() {
    let mut lines = Vec::new();
    for family in ["plain", "streams"] {
        // As much time as one likes, and as little as can be: larger pages.
        for within in [1e9, 0.0] {
            let (line, wrong) = predicted(family, "blocks", within);
            assert!(wrong <= 0.02, "{family}: {line}: {wrong}");
            lines.push(line);
        }
    }
    lines.sort_unstable();
    lines.dedup();
    assert!(lines.len() > 1, "not one advice for all: {lines:?}");
}

//! List of the functions that were hooked in the run of a trace.

use super::check::{Check, Verdict};
use gpushim_trace::Trace;

pub fn checks(trace: &Trace) -> Vec<Check> {
    let facts = trace.facts();
    let mut checks: Vec<_> = facts.iter().map(|(key, value)| check(key, value)).collect();
    for needed in ["driver", "hooks"] {
        if !facts.iter().any(|(key, _)| key == needed) {
            let detail = "the trace does not say: the process ended before CUDA was used, or the file is damaged";
            checks.push(Check::new(needed, Verdict::Note, detail));
        }
    }
    let (recorded, lost, torn) = (trace.recorded(), trace.lost(), trace.torn());
    let detail = format!(
        "{recorded} recorded, {} readable, {lost} lost, {torn} half written",
        trace.readable()
    );
    checks.push(Check::new(
        "events",
        if lost + torn > 0 {
            Verdict::Note
        } else {
            Verdict::Ok
        },
        detail,
    ));
    for problem in trace.problems() {
        checks.push(Check::new("file", Verdict::Problem, problem.clone()));
    }
    if trace.facts_cut() > 0 {
        let detail = format!("{} did not fit into the file", trace.facts_cut());
        checks.push(Check::new("facts", Verdict::Note, detail));
    }
    checks
}

/// A fact of the shim as a check.
fn check(key: &str, value: &str) -> Check {
    match key {
        "problem" => Check::new("setting", Verdict::Problem, value),
        "deepbind" => {
            let detail = format!(
                "{value}: loaded with RTLD_DEEPBIND, its runtime calls may not be in the trace"
            );
            Check::new(key, Verdict::Note, detail)
        }
        "hooks.absent" => Check::new(
            key,
            Verdict::Note,
            format!("this driver does not have: {value}"),
        ),
        "limit.ledger.problem" => {
            let detail = format!("failed to {value}: the limit held for the process alone");
            Check::new("GPUSHIM_LIMIT", Verdict::Problem, detail)
        }
        "exports" => Check::new(key, Verdict::Note, value),
        _ if key.starts_with("takeover.") && key.ends_with(".limits") => {
            Check::new(key, Verdict::Note, format!("not done there: {value}"))
        }
        _ => Check::new(key, Verdict::Ok, value),
    }
}

//! Effect of takeover and of elastic memory in the present environment.
//! Limits of frameworks under takeover.

use serde::Serialize;

use super::check::{Check, Verdict};
use gpushim_config::takeover::{self, Decision, LIMITS, decide, expand};
use gpushim_config::{Elastic, Resolved};

/// One thing that a framework cannot do when it was taken over.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Limit {
    pub framework: &'static str,
    pub what: &'static str,
    pub instead: &'static str,
}

/// All limits of all frameworks.
pub fn limits() -> Vec<Limit> {
    let each = |limit: &takeover::Limit| Limit {
        framework: limit.framework.name(),
        what: limit.what,
        instead: limit.instead,
    };
    LIMITS.iter().map(each).collect()
}

/// Checks of each framework that is to be taken over, and of elastic memory.
pub fn checks(resolved: &Resolved) -> Vec<Check> {
    let decided = decide(resolved.config.takeover, |name| std::env::var_os(name));
    let is_elastic = resolved.config.elastic != Elastic::Off;
    let expanded = is_elastic.then(|| expand(|name| std::env::var_os(name)));
    let takeover = |decision: &Decision| {
        let what = format!("takeover.{}", decision.framework.key());
        check(&what, decision)
    };
    let expanded = expanded.map(|decision| check("elastic.torch", &decision));
    decided.iter().map(takeover).chain(expanded).collect()
}

fn check(what: &str, decision: &Decision) -> Check {
    let verdict = if decision.taken {
        Verdict::Ok
    } else {
        Verdict::Note
    };
    Check::new(what, verdict, &*decision.words)
}

//! Effect of takeover in the present environment, and the limits of frameworks under takeover.

use serde::Serialize;

use super::check::{Check, Verdict};
use gpushim_config::Resolved;
use gpushim_config::takeover::{self, Decision, LIMITS, decide};

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

/// A check for each framework that is to be taken over.
pub fn checks(resolved: &Resolved) -> Vec<Check> {
    let decided = decide(resolved.config.takeover, |name| std::env::var_os(name));
    let check = |decision: &Decision| {
        let what = format!("takeover.{}", decision.framework.key());
        let verdict = if decision.taken {
            Verdict::Ok
        } else {
            Verdict::Note
        };
        Check::new(&what, verdict, &*decision.words)
    };
    decided.iter().map(check).collect()
}

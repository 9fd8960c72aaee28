//! A check of the doctor and its result.

use serde::Serialize;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No problem.
    Ok,
    /// Works, with something that the user should know.
    Note,
    /// Something does not work.
    Problem,
}

/// One thing that was checked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check {
    pub what: String,
    pub verdict: Verdict,
    pub detail: String,
}

impl Check {
    pub fn new(what: &str, verdict: Verdict, detail: impl Into<String>) -> Check {
        Check {
            what: what.to_string(),
            verdict,
            detail: detail.into(),
        }
    }
}

//! A check, and what came of it.

use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Something does not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
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

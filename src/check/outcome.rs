//! Results of the rules of a check.

use serde::Serialize;

/// What came of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
    /// The recording does not tell. That is no failure.
    Unknown,
}

/// The result of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Outcome {
    /// Subject of the check: `peak of tensors on gpu 0`.
    pub name: String,
    /// What came of it.
    pub status: Status,
    /// It in a sentence, without the name.
    pub text: String,
    /// The measured value, bytes or a count.
    pub measured: Option<u64>,
    /// The highest that is allowed.
    pub allowed: Option<u64>,
}

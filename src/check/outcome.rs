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

impl Outcome {
    /// Compares a value with the most that is allowed.
    pub fn at_most(
        name: impl Into<String>,
        measured: u64,
        allowed: u64,
        text: impl Into<String>,
    ) -> Outcome {
        let is_more = measured > allowed;
        Outcome {
            name: name.into(),
            status: if is_more {
                Status::Failed
            } else {
                Status::Passed
            },
            text: text.into(),
            measured: Some(measured),
            allowed: Some(allowed),
        }
    }

    /// Result of a rule that the recording does not tell.
    pub fn unknown(name: impl Into<String>, text: impl Into<String>) -> Outcome {
        Outcome {
            name: name.into(),
            status: Status::Unknown,
            text: text.into(),
            measured: None,
            allowed: None,
        }
    }
}

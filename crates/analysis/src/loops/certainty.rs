//! The one judgement of a finding's certainty, for text, JSON, page, `run` and `check` alike.

use crate::repeats::FEW;
use serde::Serialize;

/// The certainty that repetitions are iterations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Certainty {
    /// True if a finding may rest on them.
    pub sure: bool,
    /// The evidence for it or against it.
    pub why: String,
    /// True if the user set their beginning.
    pub set: bool,
}

impl Certainty {
    /// Returns the certainty of iterations whose beginning the user set.
    pub fn set() -> Certainty {
        Certainty {
            set: true,
            ..Certainty::sure("set by --iteration")
        }
    }

    /// Returns the certainty of iterations on which a finding may rest.
    pub fn sure(why: impl Into<String>) -> Certainty {
        Certainty {
            sure: true,
            why: why.into(),
            set: false,
        }
    }

    /// Returns the certainty of repetitions that may be no iterations.
    pub fn unsure(why: impl Into<String>) -> Certainty {
        Certainty {
            sure: false,
            why: why.into(),
            set: false,
        }
    }
}

/// Degrees of certainty that a recording allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// There is enough evidence.
    Sure,
    /// There is evidence, and something else may explain it.
    Likely,
    /// There are passes, and not enough of them.
    TooFewPasses,
    /// The recording cannot show it.
    #[default]
    NotSeen,
}

/// An answer's certainty, and its evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Judgement {
    /// The degree of certainty.
    pub told: Told,
    /// The evidence for it, in words.
    pub why: String,
}

impl Judgement {
    /// Returns the judgement of a question that the recording cannot answer.
    pub fn not_seen(why: impl Into<String>) -> Judgement {
        Judgement {
            told: Told::NotSeen,
            why: why.into(),
        }
    }

    /// Judges a finding that rests on this many passes.
    pub fn found(passes: u64, certainty: &Certainty, why: String) -> Judgement {
        let told = match passes > FEW && certainty.sure {
            true => Told::Sure,
            false => Told::Likely,
        };
        let why = match (passes > FEW, certainty.sure) {
            (true, true) => why,
            (false, _) => format!("{why}; {passes} passes are few"),
            (true, false) => format!("{why}; {}", certainty.why),
        };
        Judgement { told, why }
    }

    /// Judges the absence of a finding in this many passes.
    pub fn absent(passes: u64, certainty: &Certainty) -> Judgement {
        let (told, why) = match (passes > FEW, certainty.sure) {
            (true, true) => (Told::Sure, format!("{passes} passes; {}", certainty.why)),
            (false, true) => (
                Told::TooFewPasses,
                format!("{passes} passes are too few to tell; {}", certainty.why),
            ),
            (_, false) => (Told::NotSeen, certainty.why.clone()),
        };
        Judgement { told, why }
    }
}

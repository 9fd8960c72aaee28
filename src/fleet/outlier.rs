//! Outliers among the ranks of a job.

use serde::Serialize;

use super::summary::Site;

/// Respect in which a rank is unlike the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A request ran out of memory.
    OutOfMemory,
    /// The process ended and did not say so.
    Died,
    /// The launcher started more ranks than there are files of.
    Missing,
    /// Iterations leave memory behind.
    Leak,
    /// It runs another model.
    OtherModel,
    /// Its settings, versions or hardware differ.
    OtherSettings,
    /// It holds more or less than the others, at the same model.
    Imbalance,
    /// It is slower, or behind.
    Straggler,
}

impl Kind {
    /// Returns the name that JSON has.
    pub fn name(self) -> &'static str {
        match self {
            Kind::OutOfMemory => "out-of-memory",
            Kind::Died => "died",
            Kind::Missing => "missing",
            Kind::Leak => "leak",
            Kind::OtherModel => "other-model",
            Kind::OtherSettings => "other-settings",
            Kind::Imbalance => "imbalance",
            Kind::Straggler => "straggler",
        }
    }
}

/// Ranks that are unlike the others in one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Outlier {
    /// In what.
    pub kind: Kind,
    /// The names of the ranks.
    pub ranks: Vec<String>,
    /// It in a sentence, about the first of them, or all.
    pub text: String,
    /// Bytes that it is about, of the first of them; 0 where it is not about bytes.
    pub bytes: u64,
    /// Whether it is certain.
    pub sure: bool,
    /// Why, or why not.
    pub why: String,
    /// The function that is responsible, of the first of them, as far as it is known.
    pub site: Option<Site>,
    /// The command that says more.
    pub next: Option<String>,
    /// Places of the ranks among all, the first one first.
    #[serde(skip)]
    pub members: Vec<usize>,
}

impl Outlier {
    /// Builds an outlier of one rank; its name is set later.
    pub fn of(kind: Kind, member: usize, text: String, (sure, why): (bool, &str)) -> Outlier {
        Outlier {
            kind,
            ranks: Vec::new(),
            text,
            bytes: 0,
            sure,
            why: why.to_string(),
            site: None,
            next: None,
            members: vec![member],
        }
    }
}

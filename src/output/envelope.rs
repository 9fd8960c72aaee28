//! What all JSON of the command begins with.

use serde::Serialize;

/// The version of the JSON: it grows when a field changes its meaning or goes, not when one is added.
pub const SCHEMA: u32 = 1;

/// The answers of a subcommand as JSON, described by `docs/json.schema.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Envelope<T, J = ()> {
    schema: u32,
    gpushim: &'static str,
    command: &'static str,
    found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<J>,
    results: Vec<T>,
}

impl<T> Envelope<T> {
    /// Of a subcommand, whether something was found, as its exit code says, and one result for each recording.
    pub fn new(command: &'static str, found: bool, results: Vec<T>) -> Envelope<T> {
        Envelope::of_job(command, found, None, results)
    }
}

impl Envelope<()> {
    /// What comes before the results and after them, for those that are written one by one.
    ///
    /// # Errors
    /// Those of the serialiser.
    pub fn around(command: &'static str) -> serde_json::Result<(String, &'static str)> {
        let mut text = serde_json::to_string(&Envelope::new(command, false, Vec::<()>::new()))?;
        text.truncate(text.len().saturating_sub(END.len()));
        Ok((text, END))
    }
}

/// What comes after the results.
const END: &str = "]}";

impl<T, J> Envelope<T, J> {
    /// The same, with what the recordings are together.
    pub fn of_job(
        command: &'static str,
        found: bool,
        job: Option<J>,
        results: Vec<T>,
    ) -> Envelope<T, J> {
        Envelope {
            schema: SCHEMA,
            gpushim: env!("CARGO_PKG_VERSION"),
            command,
            found,
            job,
            results,
        }
    }
}

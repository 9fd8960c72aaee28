//! Common beginning of all JSON output of the command.

use serde::Serialize;

/// The version of the JSON: it grows when a field changes its meaning or goes, not when one is
/// added.
pub const SCHEMA: u32 = 1;

/// The answers of a subcommand as JSON, described by `docs/json.schema.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Envelope<T, J = ()> {
    schema: u32,
    gpushim: &'static str,
    command: &'static str,
    found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs: Option<Vec<J>>,
    results: Vec<T>,
}

impl<T> Envelope<T> {
    /// Envelope of a subcommand with one result for each recording.
    ///
    /// `found` is true if something was found, as the exit code says.
    pub fn new(command: &'static str, found: bool, results: Vec<T>) -> Envelope<T> {
        Envelope::of(command, found, None, results)
    }
}

impl Envelope<()> {
    /// Text before and text after the results, for results that are written one by one.
    ///
    /// # Errors
    /// Those of the serialiser.
    pub fn around(command: &'static str) -> serde_json::Result<(String, &'static str)> {
        let mut text = serde_json::to_string(&Envelope::new(command, false, Vec::<()>::new()))?;
        text.truncate(text.len().saturating_sub(END.len()));
        Ok((text, END))
    }
}

/// Text that follows the results.
const END: &str = "]}";

impl<T, J> Envelope<T, J> {
    /// Envelope of a subcommand that also compares the ranks of jobs.
    pub fn of_jobs(command: &'static str, found: bool, jobs: Vec<J>, results: Vec<T>) -> Self {
        Envelope::of(command, found, Some(jobs), results)
    }

    fn of(command: &'static str, found: bool, jobs: Option<Vec<J>>, results: Vec<T>) -> Self {
        Envelope {
            schema: SCHEMA,
            gpushim: env!("CARGO_PKG_VERSION"),
            command,
            found,
            jobs,
            results,
        }
    }
}

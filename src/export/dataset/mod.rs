//! A dataset of Parquet files for engines that query many runs.
//!
//! It has tables of events and of summaries, partitioned by job, host and rank. Each table has one
//! file for each process. `docs/export.md` has the columns.
//!
//! `paths` names the files, `columns` writes rows as columns, `events` and `summaries` have the
//! tables.

mod columns;
pub(crate) mod command;
mod events;
mod live;
mod paths;
mod summaries;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use parquet::data_type::ByteArray;
use paths::Identity;

use crate::error::{Result, failed};
use crate::fleet::RankSummary;
use crate::recording::Recording;

/// A folder with the tables of a dataset.
#[derive(Clone, Copy, Debug)]
pub struct Dataset<'a> {
    /// Path of the dataset's folder.
    pub folder: &'a Path,
    /// The name of the job of all processes; `None` for the one that the launcher of each gave.
    pub job: Option<&'a str>,
}

impl Dataset<'_> {
    /// Writes the events of a recording and its summary, and returns the path of the events.
    ///
    /// Existing files of the same process are replaced.
    ///
    /// # Errors
    /// A file cannot be written; completes "failed to …".
    pub fn add(&self, recording: &dyn Recording, summary: &RankSummary) -> Result<PathBuf> {
        let identity = self.identity(summary, recording.path());
        self.add_summary(summary, recording.path())?;
        let path = identity.path(self.folder, "events");
        in_place(&path, |path| {
            events::write(recording, identity.name(), path)
        })?;
        Ok(path)
    }

    /// Writes a summary alone. `file` is where it or its trace lies.
    ///
    /// # Errors
    /// A file cannot be written; completes "failed to …".
    pub fn add_summary(&self, summary: &RankSummary, file: &Path) -> Result<()> {
        let identity = self.identity(summary, file);
        let trace = ByteArray::from(identity.name().as_bytes().to_vec());
        for (table, write) in summaries::TABLES {
            let path = identity.path(self.folder, table);
            in_place(&path, |path| write(summary, trace.clone(), path))?;
        }
        Ok(())
    }

    fn identity(&self, summary: &RankSummary, file: &Path) -> Identity {
        Identity::of(&summary.process, self.job, file)
    }
}

/// Writes a file in a folder that is made if need be.
fn in_place(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let place = |error: &dyn std::fmt::Display| failed!("write {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| place(&error))?;
    }
    write(path).map_err(|error| place(&error))
}

/// Writes each recording into a dataset, with a summary made of it; the files of events.
///
/// # Errors
/// A file cannot be written; completes "failed to …".
pub fn parquet(
    recordings: &[Box<dyn Recording>],
    folder: &Path,
    job: Option<&str>,
) -> Result<Vec<PathBuf>> {
    let dataset = Dataset { folder, job };
    let add = |recording: &dyn Recording| dataset.add(recording, &RankSummary::read(recording));
    recordings.iter().map(|one| add(&**one)).collect()
}

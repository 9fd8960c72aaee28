//! Facts that are known only after the process has ended.

use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Error;
use crate::control::head;
use crate::layout::facts;
use crate::reader::Trace;
use crate::writer::fact_line;

/// Action named by the [`Error`]s of this module.
const ADD: &str = "add a fact to the trace";

/// Adds a fact to the trace of a process that has ended. In the trace of a running process, two
/// writers would write to the same place.
///
/// ```
/// use gpushim_trace::{Trace, Writer, WriterOptions, add_fact};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.trace");
/// drop(Writer::create(&path, &WriterOptions::default())?);
/// add_fact(&path, "ended.by", "signal 9")?;
/// assert_eq!(Trace::open(&path)?.fact("ended.by").as_deref(), Some("signal 9"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// It cannot be written by this user, is no trace, is compressed, or has no room for more facts.
pub fn add_fact(path: &Path, key: &str, value: &str) -> Result<(), Error> {
    let failed = |why: &str| Error::new(ADD, path, why);
    let system = |error| Error::io(ADD, path, "", error);
    let file = gpushim_descriptors::open(path).map_err(system)?;
    let meta = file.metadata().map_err(system)?;
    if !meta.is_file() {
        return Err(failed("it is not a regular file"));
    }
    let first = head(&file, meta.len()).map_err(system)?;
    let part = Trace::from_bytes(path, &first)?
        .facts_at()
        .ok_or_else(|| failed("it has no part for facts"))?;
    let mut used = [0; 8];
    let committed = part.offset + facts::COMMITTED as u64;
    file.read_exact_at(&mut used, committed).map_err(system)?;
    let used = u64::from_le_bytes(used);
    let line = fact_line(key, value);
    let room = part.length.saturating_sub(facts::TEXT as u64);
    if used.saturating_add(line.len() as u64) > room {
        return Err(failed("its part for facts is full"));
    }
    let text = part.offset + facts::TEXT as u64 + used;
    file.write_all_at(line.as_bytes(), text).map_err(system)?;
    let used = used + line.len() as u64;
    file.write_all_at(&used.to_le_bytes(), committed)
        .map_err(system)
}

//! The copy of a trace whose process goes on.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use gpushim_trace::{Snapshot, Trace};

use crate::error::{Context, Result};
use crate::output::units::moment;
use crate::whole::{Readers, persist, unfinished};

/// The name of a copy beside the trace: with the time, UTC.
pub fn beside(trace: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    named(trace, now.map_or(0, |now| now.as_nanos() as u64))
}

fn named(trace: &Path, wall_ns: u64) -> PathBuf {
    let digits = |letter: &char| letter.is_ascii_digit();
    let digits: String = moment(wall_ns).chars().filter(digits).collect();
    let (day, time) = digits.split_at_checked(8).unwrap_or((&digits, ""));
    let mut name = trace.file_stem().unwrap_or_default().to_os_string();
    name.push(format!("-{day}T{time}Z.trace"));
    trace.with_file_name(name)
}

/// Writes the copy. It has its name once it is whole, and only its owner may read it.
pub fn write(trace: &Path, copy: &Path) -> Result<Snapshot> {
    let place = || format!("write {}", copy.display());
    let file = unfinished(copy).context(place())?;
    let made = Trace::snapshot(trace, file.as_file(), copy)?;
    persist(file, copy, Readers::Owner).context(place())?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_named_by_the_time() {
        let name = named(
            Path::new("/data/gpushim-host-7.trace"),
            1_700_000_000_000_000_000,
        );
        assert_eq!(
            name,
            Path::new("/data/gpushim-host-7-20231114T221320Z.trace")
        );
    }
}

//! The copy of a trace whose process goes on.

use std::path::{Path, PathBuf};

use gpushim_trace::{Moment, Trace};

use crate::error::{Context, Result, failed};
use crate::output::escape::shown;
use crate::output::units::count;
use crate::whole::{Readers, Unfinished};

/// The name of a copy if none is given: beside the trace, with the word `dump`.
pub fn beside(trace: &Path) -> PathBuf {
    trace.with_extension("dump.trace")
}

/// Writes the copy, which gets its name when it is complete. Only its owner may read it.
///
/// # Errors
/// There is a file of that name, or the copy cannot be made; completes "failed to …".
pub fn write(trace: &Path, copy: &Path) -> Result<Moment> {
    let place = || format!("write {}", copy.display());
    if copy.symlink_metadata().is_ok() {
        return Err(failed!(
            "{}: there is such a file already; name another one with `-o FILE`",
            place()
        ));
    }
    let unfinished = Unfinished::beside(copy).context(place())?;
    let moment = Trace::copy_moment(trace, unfinished.file())?;
    unfinished.persist(copy, Readers::Owner).context(place())?;
    Ok(moment)
}

/// Sentence with the amount of data copied, and the events missing in the copy.
pub fn said(copy: &Path, moment: Moment) -> String {
    let mut said = format!(
        "copied to {}: blocks live {}, events in the ring {}",
        shown(&copy.display().to_string()),
        count(moment.live),
        count(moment.events)
    );
    if moment.overtaken > 0 {
        said.push_str(
            "; some events were overwritten before they could be copied and count as lost, a larger GPUSHIM_TRACE_SIZE \
             avoids that",
        );
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_lies_beside_its_trace() {
        assert_eq!(
            beside(Path::new("/data/gpushim-host-7.trace")),
            Path::new("/data/gpushim-host-7.dump.trace")
        );
    }
}

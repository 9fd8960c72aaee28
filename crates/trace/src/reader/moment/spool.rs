//! The spool of a trace, copied up to a cut.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use gpushim_descriptors::create;

use crate::regular::open_companion;
use crate::spool::{Budget, scan, segment_path, segments};

/// Copies the frames of a spool that end by the cut, to the spool of the copy. The events of later
/// frames are in the ring, except the ones overwritten meanwhile.
///
/// # Errors
/// The error of the file system. No file is left then.
pub fn copy(trace: &Path, wall_ns: u64, cut: u64, copy: &Path) -> io::Result<()> {
    let mut written = Vec::new();
    let copied = copy_all(trace, wall_ns, cut, copy, &mut written);
    if copied.is_err() {
        for number in written {
            // The first error is the one to report.
            let _ = std::fs::remove_file(segment_path(copy, number));
        }
    }
    copied
}

fn copy_all(
    trace: &Path,
    wall_ns: u64,
    cut: u64,
    copy: &Path,
    written: &mut Vec<u64>,
) -> io::Result<()> {
    let mut budget = Budget::new();
    for (number, path) in segments(trace) {
        let (mut file, _) = match open_companion(&path, trace) {
            // Deleted meanwhile, as the oldest.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let mut problems = Vec::new();
        let frames = scan(&file, wall_ns, &mut budget, &mut problems, |_, _, _| {})?;
        let mut out = create(&segment_path(copy, number))?;
        written.push(number);
        let before = frames.iter().take_while(|span| span.header.last <= cut);
        for span in before {
            file.seek(SeekFrom::Start(span.offset))?;
            let frame = (&mut file).take(span.end() - span.offset);
            io::copy(&mut { frame }, &mut out)?;
        }
        out.flush()?;
    }
    Ok(())
}

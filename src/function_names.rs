//! Names of the functions in the stacks of a trace, as data to attach to it.

use std::path::PathBuf;

use crate::compress::Attachment;
use crate::recording::{Code, Opened};
use crate::symbols::Options;
use gpushim_trace::Trace;
use gpushim_trace::attached::Attached;

/// Looks up the names in the program's files, and in the debug files in folders. Returns them, and
/// their number in words; `None` if the trace has no stacks. `problem` gets each file that cannot
/// be read.
pub fn attachment(
    trace: &Opened<Trace>,
    debug_dirs: &[PathBuf],
    problem: impl Fn(&str),
) -> Option<(Attachment, String)> {
    let code = Code::of(trace);
    if code.addresses.is_empty() {
        return None;
    }
    let options = Options {
        debug_dirs: debug_dirs.to_vec(),
        ..Options::default()
    };
    let mut symbolizer = code.symbolizer(trace.path(), options);
    let names = symbolizer.pack(code.addresses.iter().copied());
    symbolizer.problems().iter().for_each(|one| problem(one));
    let said = format!(
        ", the functions of {} of {} addresses, in {} modules",
        names.addresses(),
        code.addresses.len(),
        names.modules()
    );
    let attachment = (Attached::Symbols, names.to_text().into_bytes());
    Some((attachment, said))
}

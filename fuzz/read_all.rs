//! Reads everything that a trace holds: shared by the fuzz target and by `tests/damage.rs`.
//!
//! **Every part of the file must be read here**, through all that the reader offers for it.

use std::path::Path;

use gpushim_core::report::Report;
use gpushim_core::trace::Trace;

/// Reads all of a file's content and asserts that what it gives is bounded by its size and agrees with
/// itself. `None` where the reader refuses it.
pub fn read_all(content: &[u8]) -> Option<Trace> {
    let trace = Trace::from_bytes(Path::new("x.trace"), content).ok()?;
    assert!(trace.problems().len() <= 100, "{:?}", trace.problems());
    facts_and_counters(&trace, content.len());
    events(&trace, content.len());
    let report = Report::of(&trace).to_string();
    assert!(report.len() <= 1 << 20, "{} bytes of report", report.len());
    Some(trace)
}

fn facts_and_counters(trace: &Trace, bytes: usize) {
    // What is no UTF-8 becomes a replacement character of three bytes.
    let text =
        |facts: &[(String, String)]| facts.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    assert!(text(&trace.facts()) <= 3 * bytes);
    trace.facts_cut();
    let counters = trace.counters();
    assert!(counters.len() <= bytes / 8);
    assert!(
        counters
            .iter()
            .all(|(name, _)| !name.is_empty() && name.len() <= 3 * 56)
    );
}

fn events(trace: &Trace, bytes: usize) {
    let (mut count, mut last) = (0, None);
    for record in trace.events() {
        assert!(
            last < Some(record.ticket),
            "{last:?} then {}",
            record.ticket
        );
        last = Some(record.ticket);
        count += 1;
    }
    assert!(count <= bytes as u64 / 16);
    assert_eq!(count, trace.readable());
    assert!(trace.readable() + trace.torn() <= trace.capacity());
    assert!(trace.lost() <= trace.recorded());
    if trace.recorded() >= trace.readable() + trace.torn() {
        assert_eq!(
            trace.recorded(),
            trace.readable() + trace.lost() + trace.torn()
        );
    }
    trace.dropped();
    trace.has_wrapped();
}

//! One page of HTML that shows recordings: self-contained, without a network, opened in a browser.
//!
//! Data of a trace reaches the page only in deflated base64, and from there only as text of
//! elements. No name in it can become markup. The page's policy allows only its own script to run,
//! and allows no fetch at all.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufWriter, Write};

use serde::Serialize;

use super::memory::{MemoryHistory, Overview};
use super::notes::Notes;
use super::pack::Pack;
use super::phases::Phases;
use super::stacks::Stacks;
use crate::error::Result;
use crate::loops::{Given, Iterations, Start};
use crate::recording::Recording;
use crate::report::Report;

#[cfg(test)]
mod tests;

const PAGE: &str = include_str!("assets/page.html");
pub(super) const STYLE: &str = include_str!("assets/style.css");
/// In the order in which they need each other.
const SCRIPTS: [&str; 16] = [
    include_str!("assets/format.js"),
    include_str!("assets/data.js"),
    include_str!("assets/query.js"),
    include_str!("assets/state.js"),
    include_str!("assets/dom.js"),
    include_str!("assets/theme.js"),
    include_str!("assets/axis.js"),
    include_str!("assets/timeline.js"),
    include_str!("assets/phases.js"),
    include_str!("assets/blocks.js"),
    include_str!("assets/flame.js"),
    include_str!("assets/tables.js"),
    include_str!("assets/ranks.js"),
    include_str!("assets/findings.js"),
    include_str!("assets/input.js"),
    include_str!("assets/main.js"),
];

/// Stretches of a curve, of all pages' recordings together and of each one.
const BUCKETS_ALL: usize = 1 << 19;
const BUCKETS: (usize, usize) = (1 << 11, 1 << 16);
/// Blocks that are kept exactly, of all recordings together and of each one.
const BLOCKS_ALL: usize = 800_000;
const BLOCKS: (usize, usize) = (5_000, 200_000);

/// Iterations that the user set and the page shows.
const ITERATIONS: usize = 60_000;

/// The data of a recording that a page reads before it unpacks the rest.
#[derive(Serialize)]
struct PageEntry {
    trace: String,
    rank: Option<String>,
    host: Option<String>,
    pid: Option<String>,
    overview: Overview,
}

/// Writes the page of these recordings: the ranks of one job, or several runs.
///
/// Reads the events of each recording a few times. Memory is bounded, except for live blocks and
/// the names of stacks. Each recording comes with the user's definition of its iterations, if there
/// is one.
///
/// # Errors
/// An error of `out`.
pub fn write_page(
    recordings: &[(&dyn Recording, Option<&Given>)],
    out: &mut dyn Write,
) -> Result<()> {
    let count = recordings.len().max(1);
    let buckets = (BUCKETS_ALL / count).clamp(BUCKETS.0, BUCKETS.1);
    let blocks = (BLOCKS_ALL / count).clamp(BLOCKS.0, BLOCKS.1);
    // The writer of a trace cannot predict it.
    let nonce = format!("{:016x}", RandomState::new().hash_one(0));
    let mut out = BufWriter::new(out);
    let page = PAGE
        .replace("{{nonce}}", &nonce)
        .replace("{{style}}", STYLE);
    let (before, after) = page.split_once("{{data}}").unwrap_or((&page, ""));
    let (between, after) = after.split_once("{{script}}").unwrap_or((after, ""));
    out.write_all(before.as_bytes())?;
    let mut index = Vec::new();
    for (recording, given) in recordings {
        out.write_all(b"<script type=\"text/plain\" class=\"recording\">")?;
        index.push(payload(*recording, *given, buckets, blocks, &mut out)?);
        out.write_all(b"</script>\n")?;
    }
    out.write_all(b"<script type=\"text/plain\" id=\"index\">")?;
    let mut pack = Pack::default();
    pack.head("recordings", &index)?;
    pack.write(&mut out)?;
    out.write_all(b"</script>\n")?;
    out.write_all(between.as_bytes())?;
    for script in SCRIPTS {
        out.write_all(script.as_bytes())?;
    }
    out.write_all(after.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Begin and end of the first iterations, ns.
fn spans(iterations: &Iterations) -> Vec<[u64; 2]> {
    let pairs = iterations.starts.windows(2);
    let span = |pair: &[Start]| Some([pair.first()?.ns, pair.last()?.ns]);
    pairs.filter_map(span).take(ITERATIONS).collect()
}

/// One recording for the page.
fn payload(
    recording: &dyn Recording,
    given: Option<&Given>,
    buckets: usize,
    blocks: usize,
    out: &mut dyn Write,
) -> Result<PageEntry> {
    let report = Report::of(recording, given);
    let summary = &report.summary;
    let mut stacks = Stacks::new(recording.names(), recording.owners());
    let mut history = MemoryHistory::new(summary, buckets, blocks);
    let mut phases = Phases::new();
    let mut notes = Notes::default();
    history.begin(recording, summary.first_ns);
    for record in recording.events() {
        history.feed(&record, &mut stacks);
        phases.feed(&record, &mut stacks, |id| recording.text(id));
        notes.feed(&record, &mut stacks, |id| recording.text(id));
    }
    history.finish(&mut stacks);
    let mut pack = Pack::default();
    let overview = history.pack(recording, summary, &mut pack)?;
    phases.pack(summary.last_ns, &mut pack)?;
    pack.head("iterations", &report.iterations.as_ref().map(spans))?;
    notes.pack(&mut pack)?;
    let mut problems = report.problems.clone();
    problems.extend(stacks.pack(&mut pack)?);
    pack.head("problems", &problems)?;
    pack.head("report", &report)?;
    pack.write(out)?;
    let fact = |key| report.fact(key).map(str::to_string);
    Ok(PageEntry {
        rank: fact("rank"),
        host: fact("host"),
        pid: fact("pid"),
        trace: report.trace.clone(),
        overview,
    })
}

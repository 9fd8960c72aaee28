//! Reads all data of a trace, and processes it as the command does.
//!
//! The fuzz target and `tests/damage.rs` share it.
//!
//! **Every part of the file must be read here**, through all functions of the reader for it.

use std::io::{self, Write};
use std::path::Path;

use gpushim_command::events::Listing;
use gpushim_command::recording::{self, Code, names_with};
use gpushim_command::report::Report;
use gpushim_command::symbols::{Bundle, Options};
use gpushim_trace::attached::{self, Attached};
use gpushim_trace::layout::{get_u64, header};
use gpushim_trace::{Layer, Series, Trace};

#[path = "spool.rs"]
pub mod spool;

/// First bytes of a packed file.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Reads the whole content of a file. Asserts that the results are bounded by its size and
/// consistent.
///
/// Returns `None` if the reader refuses the file.
///
/// The bytes after the size in the header are the file's spool. The checksums of its frames are
/// corrected, so that frames with other damage are decoded, too.
pub fn read_all(content: &[u8]) -> Option<Trace> {
    symbols(content);
    attachments(content);
    if content.starts_with(&ZSTD) {
        packed(content);
        return None;
    }
    let bytes = get_u64(content, header::FILE_BYTES).and_then(|bytes| usize::try_from(bytes).ok());
    let trace = match bytes.and_then(|bytes| content.split_at_checked(bytes)) {
        Some((trace, frames)) if frames.len() >= spool::HEADER_BYTES => opened(trace, frames)?,
        _ => Trace::from_bytes(Path::new("x.trace"), content).ok()?,
    };
    assert!(trace.problems().len() <= 200, "{:?}", trace.problems());
    facts(&trace, content.len());
    events(&trace, content.len());
    live_and_totals(&trace, content.len());
    timeline(&trace);
    tables(&trace, content.len());
    let report = Report::of(&trace, None);
    let text = report.to_string();
    assert!(text.len() <= 1 << 20, "{} bytes of report", text.len());
    serde_json::to_writer(io::sink(), &report).unwrap();
    listed(&trace);
    Some(trace)
}

/// Reads the data attached to a file.
fn attachments(content: &[u8]) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    assert!(attached::begin(&file, content.len() as u64) <= content.len() as u64);
    for kind in [Attached::Summary, Attached::Symbols] {
        if let Ok(Some(data)) = attached::read(&file, kind) {
            symbols(&data);
        }
    }
}

/// Opens a packed file. A damaged one that is opened says so.
fn packed(content: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.trace");
    std::fs::write(&path, content).unwrap();
    if let Ok(opened) = recording::open(&path) {
        opened.events().for_each(drop);
        assert!(opened.problems().len() <= 300, "{:?}", opened.problems());
    }
}

/// Opens a trace with a spool, which has to be in a file.
fn opened(trace: &[u8], frames: &[u8]) -> Option<Trace> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.trace");
    let mut frames = frames.to_vec();
    spool::resum(&mut frames);
    std::fs::write(&path, [trace, &frames].concat()).unwrap();
    // Not just written: a reader does not wait for more.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    Trace::open(&path).ok()
}

fn facts(trace: &Trace, bytes: usize) {
    // Text without valid UTF-8 becomes replacement characters of three bytes.
    let text =
        |facts: &[(String, String)]| facts.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    assert!(text(&trace.facts()) <= 3 * bytes);
    trace.facts_cut();
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
    if trace.spooled() == 0 {
        assert!(count <= bytes as u64 / 16);
        assert_eq!(count, trace.readable());
        assert!(trace.readable() + trace.torn() <= trace.capacity());
    } else {
        // A frame that is whole and says nothing sensible shows only when its events are read.
        assert!(count <= trace.readable());
    }
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

fn live_and_totals(trace: &Trace, bytes: usize) {
    if let Some(live) = trace.live() {
        assert!(live.blocks.len() <= bytes / 64);
        assert!(live.blocks.is_sorted_by_key(|block| block.ns));
        assert!(live.problems.len() <= 4);
        live.is_complete();
    }
    let Some(totals) = trace.totals() else { return };
    for layer in [
        Layer::Tensor,
        Layer::Device,
        Layer::Managed,
        Layer::Host,
        Layer::Mapping,
    ] {
        let all = totals.layer(layer);
        all.live();
        all.live_bytes();
        totals.device(layer, 0);
    }
}

fn timeline(trace: &Trace) {
    let timeline = trace.timeline();
    assert!(timeline.devices.len() <= 8);
    for device in &timeline.devices {
        for series in Series::ALL {
            let spans = device.get(series);
            assert!(spans.len() <= 1024);
            assert!(spans.iter().all(|span| span.min <= span.max));
            assert!(spans.is_sorted_by_key(|span| span.from_ns));
        }
    }
}

/// Every id, whether anything refers to it or not.
fn tables(trace: &Trace, bytes: usize) {
    let (mut texts, mut jit) = (0, 0);
    for id in 0..=bytes as u32 / 8 {
        texts += usize::from(trace.string(id).is_some_and(|text| text.len() <= 3 * 4096));
        assert!(trace.stack(id).count() <= bytes / 16);
        jit += usize::from(trace.jit_name(u64::from(id) * 16).is_some());
    }
    assert!(texts <= bytes / 8 && jit <= bytes);
    assert!(trace.modules().len() <= bytes / 64);
    trace.cut();
}

/// Runs the code of `events --stacks` and `symbols` on a trace. It does not open files of this
/// machine, which a trace may name.
fn listed(trace: &Trace) {
    let code = Code::of(trace);
    let options = || Options {
        use_files: false,
        ..Options::default()
    };
    let mut symbolizer = code.symbolizer(trace.path(), options());
    let packed = symbolizer.pack(code.addresses.iter().copied());
    symbols(packed.to_text().as_bytes());
    let out = &mut Bounded(256 << 20);
    let mut listing = Listing::new(trace, Some(names_with(trace, options())));
    Listing::head(out).unwrap();
    for record in trace.events() {
        let listed = match record.ticket % 2 {
            0 => listing.text(&record, out),
            _ => listing.json(&record, out),
        };
        listed.unwrap();
    }
}

/// Reads a file of symbols. The result can be written and read again.
fn symbols(content: &[u8]) {
    let (bundle, problems) = Bundle::parse(content);
    assert!(problems.len() <= 4);
    let (again, problems) = Bundle::parse(bundle.to_text().as_bytes());
    assert_eq!(problems, [] as [&str; 0]);
    assert_eq!(again, bundle);
}

/// Accepts at most this number of bytes.
struct Bounded(usize);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.0.checked_sub(bytes.len());
        self.0 = left.expect("what is listed should be bounded");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

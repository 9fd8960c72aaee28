//! The dataset's table of events.

use std::path::Path;

use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;
use rustc_hash::FxHashMap;

use super::columns::{Column, TableFile, Value::*, long, text};
use super::live::Live;
use crate::error::Result;
use crate::export::frames::folded;
use crate::export::row::Row;
use crate::recording::{Names, Recording, blame};
use crate::symbols::line;
use gpushim_trace::{Kind, Record};

/// Rows of a row group. The writer holds one group in memory, and a scan reads or skips whole
/// groups.
const ROWS: usize = 1 << 18;

/// The columns, in their order.
pub const COLUMNS: &[Column<EventRow>] = &[
    Column("trace", Text(|of| Some(of.trace.clone()))),
    Column("event", Long(|of| Some(long(of.row.event)))),
    Column("ns", Long(|of| Some(long(of.row.ns)))),
    Column("time", Time(|of| of.row.wall_ns.map(|ns| long(ns / 1000)))),
    Column("kind", Text(|of| Some(of.kind.clone()))),
    Column("class", Text(|of| Some(of.class.clone()))),
    Column("device", Int(|of| of.row.device.map(i32::from))),
    Column("thread", Long(|of| Some(of.row.thread.into()))),
    // All bits of an address are kept.
    Column("address", Long(|of| Some(of.row.address.cast_signed()))),
    Column("size", Long(|of| Some(long(of.row.size)))),
    Column("result", Int(|of| Some(of.row.result.into()))),
    Column("flags", Text(|of| of.flags.clone())),
    Column("stream", Long(|of| of.row.stream.map(u64::cast_signed))),
    Column("block", Long(|of| of.row.block.map(long))),
    Column("driver_ns", Long(|of| of.row.driver_ns.map(long))),
    Column("live", Long(|of| of.live.map(long))),
    Column("allocated", Long(|of| of.row.allocated.map(long))),
    Column("reserved", Long(|of| of.row.reserved.map(long))),
    Column("free", Long(|of| of.row.free.map(long))),
    Column("total", Long(|of| of.row.total.map(long))),
    Column("name", Text(|of| of.name.clone())),
    Column("site", Text(|of| of.site.clone())),
    Column("stack", Text(|of| of.stack.clone())),
    Column("owner", Text(|of| of.owner.clone())),
    Column("pid", Int(|of| of.pid)),
];

/// An event with its texts, of which each is in memory once.
#[derive(Clone, Debug)]
pub struct EventRow {
    row: Row,
    /// Bytes that are live after it.
    live: Option<u64>,
    trace: ByteArray,
    kind: ByteArray,
    class: ByteArray,
    flags: Option<ByteArray>,
    name: Option<ByteArray>,
    site: Option<ByteArray>,
    stack: Option<ByteArray>,
    /// Owner of the block that the event made, in words.
    owner: Option<ByteArray>,
    pid: Option<i32>,
}

/// Writes the events of a recording. The facts of the process are the metadata of the file.
pub fn write(recording: &dyn Recording, trace: &str, path: &Path) -> Result<()> {
    let facts = recording.facts().into_iter();
    let facts = facts.map(|(key, value)| KeyValue::new(format!("gpushim.{key}"), value));
    let mut file = TableFile::create(path, COLUMNS, Some("ns"), facts.collect())?;
    let mut words = Words::default();
    let mut stacks = Stacks {
        names: recording.names(),
        known: FxHashMap::default(),
    };
    let pid = recording.process().pid.map(u32::cast_signed);
    let trace = words.get(trace);
    let mut live = Live::before(recording);
    let owners = recording.owners();
    let mut events = recording.events();
    loop {
        let of_record = |record: Record| {
            let row = Row::of(recording, &record);
            let (site, stack) = match row.stack {
                Some(stack) => stacks.get(stack),
                None => (None, None),
            };
            let event = &record.event;
            let owner = match event.kind {
                Kind::Alloc | Kind::TensorAlloc => {
                    owners.of_block(event.class.layer(), event.address, record.ticket)
                }
                _ => None,
            };
            EventRow {
                owner: owner.map(|owner| words.get(&owner.in_words())),
                live: live.after(&record),
                trace: trace.clone(),
                kind: words.get(row.kind),
                class: words.get(row.class),
                flags: (!row.flags.is_empty()).then(|| words.get(&row.flags)),
                name: row.name.as_ref().map(|name| words.get(name)),
                site,
                stack,
                pid,
                row,
            }
        };
        let mut rows: Vec<EventRow> = events.by_ref().take(ROWS).map(of_record).collect();
        if rows.is_empty() {
            break;
        }
        rows.sort_by_key(|of| (of.row.ns, of.row.event));
        file.put(&rows)?;
    }
    file.finish(path)
}

/// Stacks as text, each made once: the function that a user would change, and all of them.
struct Stacks<'a> {
    names: Box<dyn Names + 'a>,
    known: FxHashMap<u32, (Option<ByteArray>, Option<ByteArray>)>,
}

impl Stacks<'_> {
    fn get(&mut self, stack: u32) -> (Option<ByteArray>, Option<ByteArray>) {
        let of = self.known.entry(stack).or_insert_with(|| {
            let frames = self.names.stack(stack);
            let site = blame(&frames).and_then(|symbol| text(&line(symbol)));
            (site, text(&folded(&frames)))
        });
        of.clone()
    }
}

/// Short texts that come often: each is made once.
#[derive(Default)]
struct Words(FxHashMap<String, ByteArray>);

impl Words {
    fn get(&mut self, word: &str) -> ByteArray {
        if let Some(known) = self.0.get(word) {
            return known.clone();
        }
        let made = ByteArray::from(word.as_bytes().to_vec());
        self.0.insert(word.to_string(), made.clone());
        made
    }
}

use std::collections::BTreeMap;
use std::fs::File;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::record::Field;

use super::columns::Column;
use super::*;
use crate::recording::open;
use gpushim_trace::{Class, Event, Kind, Writer, WriterOptions};

const DOCUMENT: &str = include_str!("../../../docs/export.md");

fn data(name: &str) -> Box<dyn Recording> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    open(&path.join(name)).expect("a recording of the tests")
}

/// A trace with more rows than a group has, each block freed at once.
fn long_trace(path: &Path) -> Box<dyn Recording> {
    let options = WriterOptions {
        bytes: 64 << 20,
        ..WriterOptions::default()
    };
    let writer = Writer::create(path, &options).expect("written");
    for number in 0..150_000_u64 {
        let event = |kind| Event {
            address: 0x1000,
            size: 512 + number,
            device: 0,
            extra: [512, 1024],
            ..Event::new(kind, Class::Tensor)
        };
        writer.record_alloc(&event(Kind::TensorAlloc));
        writer.record_free(&event(Kind::TensorFree));
    }
    drop(writer);
    open(path).expect("a trace")
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        match entry.path().is_dir() {
            true => found.extend(files_below(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

#[test]
fn rows_are_sorted_and_a_scan_can_skip_groups() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = long_trace(&folder.path().join("a.trace"));
    let paths = parquet(&[trace], &folder.path().join("lake"), Some("x")).expect("written");
    let reader = SerializedFileReader::new(File::open(&paths[0]).expect("there")).expect("read");
    let groups = reader.metadata().row_groups();
    assert_eq!(groups.len(), 2);
    let at = events::COLUMNS
        .iter()
        .position(|one| one.0 == "ns")
        .expect("ns");
    let mut last = 0;
    for group in groups {
        let sorted = group.sorting_columns().expect("sorted");
        assert_eq!(
            (sorted[0].column_idx, sorted[0].descending),
            (at as i32, false)
        );
        let Some(Statistics::Int64(of)) = group.column(at).statistics() else {
            panic!("ns has no statistics");
        };
        let (from, to) = (of.min_opt().expect("least"), of.max_opt().expect("most"));
        assert!(last <= *from && from < to, "{last} {from} {to}");
        last = *to;
        for (column, name) in group.columns().iter().zip(events::COLUMNS) {
            assert!(
                column.statistics().is_some(),
                "{} has no statistics",
                name.0
            );
        }
    }
    let mut last = 0;
    for row in reader.get_row_iter(None).expect("rows").take(1000) {
        let row = row.expect("a row");
        let fields: BTreeMap<_, _> = row.get_column_iter().collect();
        let Field::Long(ns) = fields[&"ns".to_string()] else {
            panic!("ns is a number: {row}");
        };
        assert!(*ns >= last);
        last = *ns;
    }
}

#[test]
fn what_is_live_is_what_the_report_says() {
    for name in ["training.pickle.gz", "inference.pickle.gz"] {
        let recording = data(name);
        let mut live = live::Live::before(&*recording);
        let mut most: BTreeMap<u8, u64> = BTreeMap::new();
        for record in recording.events() {
            if let Some(bytes) = live.after(&record)
                && record.event.class == Class::Tensor
            {
                let of = most.entry(record.event.device).or_default();
                *of = bytes.max(*of);
            }
        }
        let summary = RankSummary::read(&*recording);
        let said = summary
            .devices
            .iter()
            .filter(|device| device.of == "tensors");
        let said: BTreeMap<u8, u64> = said
            .filter_map(|device| Some((device.device?, device.peak)))
            .filter(|(_, peak)| *peak > 0)
            .collect();
        most.retain(|_, peak| *peak > 0);
        assert_eq!(most, said, "{name}");
    }
}

#[test]
fn the_same_trace_replaces_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let lake = folder.path().join("lake");
    let write = |name: &str| {
        let path = folder.path().join(name);
        let writer = Writer::create(&path, &WriterOptions::default()).expect("written");
        writer.fact("job", "a/b");
        drop(writer);
        open(&path).expect("a trace")
    };
    let first = [write("a.trace")];
    parquet(&first, &lake, None).expect("written");
    let files = files_below(&lake);
    assert_eq!(files.len(), 5, "{files:?}");
    assert!(
        files
            .iter()
            .all(|path| path.to_string_lossy().contains("/job=a%2Fb/"))
    );
    parquet(&first, &lake, None).expect("written");
    assert_eq!(files_below(&lake), files);
    parquet(&[write("other.trace")], &lake, None).expect("written");
    assert_eq!(files_below(&lake).len(), 10);
}

/// The names and types that the document gives the columns of a table.
fn told(table: &str) -> Vec<(String, String)> {
    let begin = format!("#### {table}\n");
    let (_, rest) = DOCUMENT
        .split_once(&begin)
        .unwrap_or_else(|| panic!("no {table}"));
    let part = rest.split("\n#").next().unwrap_or_default();
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    let mut told = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for name in cells[1].split(", ") {
            told.push((name.trim_matches('`').to_string(), cells[2].to_string()));
        }
    }
    told
}

fn real<R>(columns: &[Column<R>]) -> Vec<(String, String)> {
    let of = |one: &Column<R>| (one.0.to_string(), one.kind().to_string());
    columns.iter().map(of).collect()
}

#[test]
fn the_document_has_the_columns_of_each_table() {
    assert_eq!(told("events"), real(events::COLUMNS));
    assert_eq!(told("summaries"), real(summaries::SUMMARIES));
    assert_eq!(told("holders"), real(summaries::HOLDERS));
    assert_eq!(told("phases"), real(summaries::PHASES));
    assert_eq!(told("over_time"), real(summaries::OVER_TIME));
}

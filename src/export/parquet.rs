//! Parquet, for engines that query many runs: a folder that is partitioned by job and rank, a file for each
//! process, flat columns, zstd. `docs/export.md` names the columns.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use rustc_hash::FxHashMap;

use super::frames::folded;
use super::process::Process;
use super::row::Row;
use crate::error::{Result, failed};
use crate::recording::{Names, Recording, blame};
use crate::symbols::line;
use crate::whole::{Readers, Unfinished};

/// Rows that are written at a time, and held in memory until then.
const ROWS: usize = 1 << 18;

const SCHEMA: &str = "message gpushim {
    required int64 event (INTEGER(64, false));
    required int64 ns;
    optional int64 time (TIMESTAMP(MICROS, true));
    required binary kind (STRING);
    required binary class (STRING);
    optional int32 device;
    required int64 thread;
    required int64 address (INTEGER(64, false));
    required int64 size (INTEGER(64, false));
    required int32 result;
    optional binary flags (STRING);
    optional int64 stream (INTEGER(64, false));
    optional int64 block (INTEGER(64, false));
    optional int64 driver_ns;
    optional int64 allocated (INTEGER(64, false));
    optional int64 reserved (INTEGER(64, false));
    optional int64 free (INTEGER(64, false));
    optional int64 total (INTEGER(64, false));
    optional binary name (STRING);
    optional binary site (STRING);
    optional binary stack (STRING);
    required int32 pid;
    required binary host (STRING);
}";

/// Writes a folder `job=…/rank=…/….parquet` with a file for each recording; the files written. A process
/// without a rank is of rank 0.
///
/// # Errors
/// A file cannot be written; completes "failed to …".
pub fn parquet(
    recordings: &[Box<dyn Recording>],
    folder: &Path,
    job: &str,
) -> Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for (place, recording) in recordings.iter().enumerate() {
        let process = Process::of(&**recording, place);
        let rank = process.rank.clone().unwrap_or_else(|| "0".to_string());
        let within = folder
            .join(format!("job={}", escaped(job)))
            .join(format!("rank={}", escaped(&rank)));
        fs::create_dir_all(&within)
            .map_err(|error| failed!("create {}: {error}", within.display()))?;
        let stem = recording.path().file_name().unwrap_or_default();
        let stem = escaped(&stem.to_string_lossy());
        let name = |again: usize| match again {
            0 => within.join(format!("{stem}.parquet")),
            _ => within.join(format!("{stem}-{again}.parquet")),
        };
        // Two files of one name, from two folders, are two files here, too.
        let path = (0..=place).map(name).find(|path| !paths.contains(path));
        let path = path.unwrap_or_else(|| name(place + 1));
        write(&**recording, &process, &path)
            .map_err(|error| failed!("write {}: {error}", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

/// A value as the name of a folder: what readers of partitioned folders take apart is written as `%XX`.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' => text.push(byte.into()),
            b'.' if !text.is_empty() => text.push('.'),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
        // File systems take 255 bytes, of which numbers and endings need some.
        if text.len() >= 200 {
            break;
        }
    }
    if text.is_empty() {
        "none".to_string()
    } else {
        text
    }
}

fn write(recording: &dyn Recording, process: &Process, path: &Path) -> Result<()> {
    let facts = recording.facts().into_iter();
    let facts = facts.map(|(key, value)| KeyValue::new(format!("gpushim.{key}"), value));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("gpushim version {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(facts.collect()))
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    // A file that is not finished does not have the name that queries look for.
    let unfinished = Unfinished::beside(path)?;
    let mut writer =
        SerializedFileWriter::new(unfinished.file().try_clone()?, schema, Arc::new(properties))?;
    let mut stacks = Stacks {
        names: recording.names(),
        known: FxHashMap::default(),
    };
    let mut events = recording.events();
    loop {
        let rows: Vec<Row> = events
            .by_ref()
            .take(ROWS)
            .map(|record| Row::of(recording, &record))
            .collect();
        if rows.is_empty() {
            break;
        }
        let mut group = writer.next_row_group()?;
        columns(&mut group, &rows, &mut stacks, process)?;
        group.close()?;
    }
    writer.close()?;
    Ok(unfinished.persist(path, Readers::Owner)?)
}

/// Stacks as text, each made once: the function that a user would change, and all of them.
struct Stacks<'a> {
    names: Box<dyn Names + 'a>,
    known: FxHashMap<u32, (Option<ByteArray>, ByteArray)>,
}

impl Stacks<'_> {
    fn get(&mut self, stack: u32) -> &(Option<ByteArray>, ByteArray) {
        self.known.entry(stack).or_insert_with(|| {
            let frames = self.names.stack(stack);
            let site = blame(&frames).map(|symbol| text(&line(symbol)));
            (site, text(&folded(&frames)))
        })
    }
}

type Group<'a> = SerializedRowGroupWriter<'a, File>;

/// Writes the columns of the schema, in its order.
fn columns(
    group: &mut Group<'_>,
    rows: &[Row],
    stacks: &mut Stacks<'_>,
    process: &Process,
) -> Result<()> {
    // Unsigned numbers are kept as signed ones of the same bits.
    let long = |value: u64| value as i64;
    let longs = |value: Option<u64>| value.map(long);
    let mut words = Words::default();
    required::<Int64Type>(group, rows, |row| long(row.event))?;
    required::<Int64Type>(group, rows, |row| long(row.ns))?;
    optional::<Int64Type>(group, rows, |row| row.wall_ns.map(|ns| long(ns / 1000)))?;
    required::<ByteArrayType>(group, rows, |row| words.get(row.kind))?;
    required::<ByteArrayType>(group, rows, |row| words.get(row.class))?;
    optional::<Int32Type>(group, rows, |row| row.device.map(i32::from))?;
    required::<Int64Type>(group, rows, |row| row.thread.into())?;
    required::<Int64Type>(group, rows, |row| long(row.address))?;
    required::<Int64Type>(group, rows, |row| long(row.size))?;
    required::<Int32Type>(group, rows, |row| row.result.into())?;
    optional::<ByteArrayType>(group, rows, |row| {
        (!row.flags.is_empty()).then(|| words.get(&row.flags))
    })?;
    optional::<Int64Type>(group, rows, |row| longs(row.stream))?;
    optional::<Int64Type>(group, rows, |row| longs(row.block))?;
    optional::<Int64Type>(group, rows, |row| longs(row.driver_ns))?;
    optional::<Int64Type>(group, rows, |row| longs(row.allocated))?;
    optional::<Int64Type>(group, rows, |row| longs(row.reserved))?;
    optional::<Int64Type>(group, rows, |row| longs(row.free))?;
    optional::<Int64Type>(group, rows, |row| longs(row.total))?;
    optional::<ByteArrayType>(group, rows, |row| Some(words.get(row.name.as_ref()?)))?;
    optional::<ByteArrayType>(group, rows, |row| stacks.get(row.stack?).0.clone())?;
    optional::<ByteArrayType>(group, rows, |row| Some(stacks.get(row.stack?).1.clone()))?;
    required::<Int32Type>(group, rows, |_| process.pid as i32)?;
    let host = text(&process.host);
    required::<ByteArrayType>(group, rows, |_| host.clone())?;
    Ok(())
}

/// Short texts that come often: each is made once.
#[derive(Default)]
struct Words(FxHashMap<String, ByteArray>);

impl Words {
    fn get(&mut self, word: &str) -> ByteArray {
        if let Some(known) = self.0.get(word) {
            return known.clone();
        }
        let made = text(word);
        self.0.insert(word.to_string(), made.clone());
        made
    }
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

fn required<T: DataType>(
    group: &mut Group<'_>,
    rows: &[Row],
    value: impl FnMut(&Row) -> T::T,
) -> Result<()> {
    let values: Vec<T::T> = rows.iter().map(value).collect();
    put::<T>(group, &values, None)
}

fn optional<T: DataType>(
    group: &mut Group<'_>,
    rows: &[Row],
    mut value: impl FnMut(&Row) -> Option<T::T>,
) -> Result<()> {
    let mut values = Vec::new();
    let mut levels = Vec::with_capacity(rows.len());
    for row in rows {
        let value = value(row);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    put::<T>(group, &values, Some(&levels))
}

fn put<T: DataType>(group: &mut Group<'_>, values: &[T::T], levels: Option<&[i16]>) -> Result<()> {
    let column = group.next_column()?;
    let mut column = column.ok_or_else(|| failed!("there are more columns than the schema has"))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()?;
    Ok(())
}

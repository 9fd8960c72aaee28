//! Reads exports for other programs back.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use proptest::prelude::*;

use crate::export::{Format, Measure, parquet, write};
use crate::ledger::{Focus, Moment};
use crate::metrics::metrics;
use crate::peak::Peak;
use crate::recording::{Recording, open};
use crate::report::figures_of;

/// Live bytes, and bytes at the peak.
pub type EndAndPeak = (u64, u64);

/// The value of a metric of a device.
pub fn metric(text: &str, name: &str, device: u8) -> Option<u64> {
    let of_device = format!("gpu=\"{device}\"");
    let mut lines = text.lines();
    let line =
        lines.find(|line| line.starts_with(&format!("{name}{{")) && line.contains(&of_device));
    line?.rsplit_once(' ')?.1.parse().ok()
}

/// Checks that the metrics end with the figures of the report.
pub fn metrics_agree(recordings: &[Box<dyn Recording>]) -> Result<(), TestCaseError> {
    let text = metrics(recordings);
    for recording in recordings {
        for device in figures_of(&**recording).devices {
            let Some(ordinal) = device.device else {
                continue;
            };
            for (name, end) in [
                ("gpushim_requested_bytes", device.requested.end),
                ("gpushim_allocated_bytes", device.allocated.end),
                ("gpushim_reserved_bytes", device.reserved.end),
            ] {
                prop_assert_eq!(
                    metric(&text, name, ordinal),
                    Some(end),
                    "{} of {}",
                    name,
                    ordinal
                );
            }
        }
    }
    Ok(())
}

/// Writes recordings in a format, and opens the result as a recording.
pub fn back(
    format: Format,
    recordings: &[Box<dyn Recording>],
    folder: &Path,
) -> Box<dyn Recording> {
    let path = folder.join("written");
    let mut out = File::create(&path).unwrap();
    write(format, recordings, Measure::Live, &mut out).unwrap();
    open(&path).unwrap()
}

/// Bytes live in a log of requests at the end and at the peak, of all devices together.
pub fn of_log(recordings: &[Box<dyn Recording>], folder: &Path) -> EndAndPeak {
    let log = back(Format::Rmm, recordings, folder);
    let focus = Focus::of(&*log, None);
    let at = |moment| Peak::at(&*log, focus, moment).bytes;
    (at(Moment::End), at(Moment::Peak))
}

/// Bytes live in a snapshot at the end and at the peak, by device. Devices without memory are left
/// out.
pub fn of_snapshot(recordings: &[Box<dyn Recording>], folder: &Path) -> Vec<EndAndPeak> {
    let snapshot = back(Format::MemoryViz, recordings, folder);
    let tensors = figures_of(&*snapshot).devices.into_iter();
    let tensors = tensors.filter_map(|device| Some(device.tensors?.tensors));
    let all = tensors.map(|gauge| (gauge.end, gauge.peak));
    all.filter(|(_, peak)| *peak > 0).collect()
}

/// By device, bytes allocated less bytes freed in the rows of a table, of these classes.
pub fn of_table(
    recordings: &[Box<dyn Recording>],
    folder: &Path,
    classes: &[&str],
) -> BTreeMap<u8, i64> {
    let mut sums = BTreeMap::new();
    for path in parquet(recordings, folder, None).unwrap() {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let fields: BTreeMap<&str, &Field> = row
                .get_column_iter()
                .map(|(name, field)| (name.as_str(), field))
                .collect();
            let (Field::Str(kind), Field::Str(class)) = (fields["kind"], fields["class"]) else {
                panic!("kind and class are texts: {row}");
            };
            let (Field::Long(size), Field::Int(result)) = (fields["size"], fields["result"]) else {
                panic!("size and result are numbers: {row}");
            };
            let sign = match kind.as_str() {
                "alloc" | "tensor-alloc" => 1,
                "free" | "tensor-free" => -1,
                _ => 0,
            };
            if let Field::Int(device) = fields["device"]
                && classes.contains(&class.as_str())
                && *result == 0
            {
                *sums.entry(*device as u8).or_default() += sign * *size;
            }
        }
    }
    sums
}

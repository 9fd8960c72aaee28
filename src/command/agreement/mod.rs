//! All commands and exports give the same sums for one recording.
//!
//! The sums are live, requested, allocated and reserved bytes at the start, at the peak and at the
//! end. The oracle is a plain model of generated programs.

use proptest::prelude::*;

use crate::export::figures::{counters, held};
use crate::html::curves;
use crate::ledger::{Focus, Moment, Segments};
use crate::loops::{Follow, Found};
use crate::metrics::metrics;
use crate::peak::Peak;
use crate::recording::{Recording, open, read};
use crate::report::{Gauge, summarize};
use crate::requests::Requests;
use gpushim_trace::{Class, Layer, Record, Series};

mod exports;
mod program;
mod real;

use exports::{metric, of_log, of_snapshot, of_table};
use program::{May, Ran, Sums, ops, run};

const DEVICES: std::ops::Range<u8> = 0..3;

/// Sums the blocks that are followed through loops and live at the end.
fn left_at_end(recording: &dyn Recording, focus: Focus) -> u64 {
    let none = Found::default();
    let mut follow = Follow::new(recording, focus, &none, &[u64::MAX], None);
    read(recording, &mut [&mut follow]);
    let live = follow.finish().live_at.concat();
    live.iter().map(|block| block.size).sum()
}

impl Ran {
    fn at(sums: &Sums, device: u8, name: &'static str) -> u64 {
        sums.get(&(device, name)).copied().unwrap_or(0) as u64
    }

    fn start(&self, device: u8, name: &'static str) -> u64 {
        Ran::at(&self.sums[0], device, name)
    }

    fn peak(&self, device: u8, name: &'static str) -> u64 {
        let all = self.sums.iter().map(|sums| Ran::at(sums, device, name));
        all.max().unwrap_or(0)
    }

    fn end(&self, device: u8, name: &'static str) -> u64 {
        self.sums
            .last()
            .map_or(0, |sums| Ran::at(sums, device, name))
    }

    fn in_all(sums: &Sums, name: &str) -> u64 {
        let of = sums.iter().filter(|((_, of), _)| *of == name);
        of.map(|(_, bytes)| *bytes as u64).sum()
    }
}

/// Checks the sums that every recording has.
fn sums_agree(ran: &Ran, is_reserved_known: bool) -> Result<(), TestCaseError> {
    let recording: &dyn Recording = &ran.trace;
    let summary = summarize(recording);
    let (told, drawn) = (counters(recording), curves(recording));
    for device in DEVICES {
        let of = summary
            .devices
            .iter()
            .find(|one| one.device == Some(device));
        let gauge = |name| {
            let of = of?;
            Some(match name {
                "requested" => of.requested,
                "allocated" => of.allocated,
                "reserved" => of.reserved,
                _ => of.tensors.as_ref()?.tensors,
            })
        };
        for name in ["requested", "allocated", "reserved", "tensors"] {
            if name == "reserved" && !is_reserved_known {
                continue;
            }
            let (start, peak, end) = (
                ran.start(device, name),
                ran.peak(device, name),
                ran.end(device, name),
            );
            let of_report = gauge(name).map(|Gauge { peak, end, .. }| (peak, end));
            prop_assert_eq!(
                of_report.unwrap_or((0, 0)),
                (peak, end),
                "report: {} {}",
                device,
                name
            );
            let of_page = drawn
                .iter()
                .find(|(of, sum, ..)| (*of, *sum) == (device, name));
            let of_page = of_page.map_or((0, 0), |(.., peak, end)| (*peak, *end));
            prop_assert_eq!(of_page, (peak, end), "html: {} {}", device, name);
            // A counter has only changed values. The framework's own figures are another counter.
            let said = told.get(&(device, name)).filter(|_| name != "tensors");
            if let Some(said) = said {
                prop_assert_eq!(
                    said.last().copied(),
                    Some(end),
                    "perfetto: {} {}",
                    device,
                    name
                );
                let most = said.iter().copied().max().unwrap_or(0).max(start);
                prop_assert_eq!(most, peak, "perfetto: {} {}", device, name);
            } else if name != "tensors" {
                prop_assert_eq!((start, peak), (end, end), "perfetto: {} {}", device, name);
            }
        }
    }
    let (layer, live, peak) = held(recording);
    let name = match layer {
        Layer::Tensor => "tensors",
        _ => "requested",
    };
    let all = ran.sums.iter().map(|sums| Ran::in_all(sums, name));
    let expected = (all.clone().next_back().unwrap_or(0), all.max().unwrap_or(0));
    prop_assert_eq!((live, peak), expected, "profiles: {}", name);
    Ok(())
}

/// Checks the sums of exports for other programs.
fn exports_agree(ran: &Ran, is_reserved_known: bool) -> Result<(), TestCaseError> {
    let recordings: [Box<dyn Recording>; 1] = [open(ran.trace.path()).unwrap()];
    let folder = tempfile::tempdir().unwrap();
    exports::metrics_agree(&recordings)?;
    let text = metrics(&recordings);
    for device in DEVICES {
        for (name, metric_name) in [
            ("requested", "gpushim_requested_bytes"),
            ("allocated", "gpushim_allocated_bytes"),
            ("reserved", "gpushim_reserved_bytes"),
        ] {
            if name != "reserved" || is_reserved_known {
                let told = metric(&text, metric_name, device).unwrap_or(0);
                prop_assert_eq!(told, ran.end(device, name), "metrics: {} {}", device, name);
            }
        }
    }
    let name = name_of(&*recordings[0]);
    let all = ran.sums.iter().map(|sums| Ran::in_all(sums, name));
    let expected = (all.clone().next_back().unwrap_or(0), all.max().unwrap_or(0));
    prop_assert_eq!(
        of_log(&recordings, folder.path()),
        expected,
        "RMM: {}",
        name
    );
    Ok(())
}

/// Checks the sums of a snapshot.
///
/// A snapshot has one history for each device, with times in microseconds. It does not say in which
/// order two devices used one address. Programs that lose such a free are left out.
fn snapshots_agree(ran: &Ran) -> Result<(), TestCaseError> {
    let recordings: [Box<dyn Recording>; 1] = [open(ran.trace.path()).unwrap()];
    let folder = tempfile::tempdir().unwrap();
    let name = name_of(&*recordings[0]);
    let by_device = DEVICES.map(|device| (ran.end(device, name), ran.peak(device, name)));
    let by_device: Vec<_> = by_device.filter(|(_, peak)| *peak > 0).collect();
    prop_assert_eq!(
        of_snapshot(&recordings, folder.path()),
        by_device,
        "snapshot: {}",
        name
    );
    Ok(())
}

/// Name of the sum of the layer that exports describe.
fn name_of(recording: &dyn Recording) -> &'static str {
    match held(recording).0 {
        Layer::Tensor => "tensors",
        _ => "requested",
    }
}

/// Checks that the rows of a table add up to the difference between the live bytes at the end and
/// at the start.
fn tables_agree(ran: &Ran) -> Result<(), TestCaseError> {
    let recordings: [Box<dyn Recording>; 1] = [open(ran.trace.path()).unwrap()];
    let folder = tempfile::tempdir().unwrap();
    for (layer, name) in [(Layer::Device, "requested"), (Layer::Tensor, "tensors")] {
        let classes: Vec<&str> = program::classes(layer).map(Class::name).collect();
        let sums = of_table(&recordings, folder.path(), &classes);
        for device in DEVICES {
            let more = ran.end(device, name) as i64 - ran.start(device, name) as i64;
            let told = sums.get(&device).copied().unwrap_or(0);
            prop_assert_eq!(told, more, "parquet: {} {}", device, name);
        }
    }
    Ok(())
}

/// Checks the blocks one by one.
///
/// Blocks from before the recording are known by their frees, or by the live table.
fn blocks_agree(ran: &Ran, is_reserved_known: bool) -> Result<(), TestCaseError> {
    let recording: &dyn Recording = &ran.trace;
    for (layer, name) in [(Layer::Device, "requested"), (Layer::Tensor, "tensors")] {
        for device in DEVICES {
            let focus = Focus {
                layer,
                device: Some(device),
            };
            let at = |moment| Peak::at(recording, focus, moment).bytes;
            prop_assert_eq!(
                at(Moment::Peak),
                ran.peak(device, name),
                "peak: {} {}",
                device,
                name
            );
            prop_assert_eq!(
                at(Moment::End),
                ran.end(device, name),
                "end: {} {}",
                device,
                name
            );
            let left = left_at_end(recording, focus);
            prop_assert_eq!(left, ran.end(device, name), "followed: {} {}", device, name);
        }
    }
    let focus = Focus {
        layer: Layer::Device,
        device: None,
    };
    let requests = Requests::of(recording, focus);
    for device in DEVICES {
        let peak = requests.get(&device).map_or(0, Requests::peak);
        prop_assert_eq!(peak, ran.peak(device, "replayed"), "replay: {}", device);
    }
    if !is_reserved_known {
        return Ok(());
    }
    let mut segments = Segments::of(recording, focus);
    let records: Vec<Record> = recording.events().collect();
    records.iter().for_each(|record| segments.feed(record));
    let reserved = ran
        .sums
        .last()
        .map_or(0, |sums| Ran::in_all(sums, "reserved"));
    prop_assert_eq!(segments.total(), reserved, "fragmentation");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_whole_run(ops in ops()) {
        let ran = run(&ops, May::Plain);
        sums_agree(&ran, true)?;
        blocks_agree(&ran, true)?;
        exports_agree(&ran, true)?;
        snapshots_agree(&ran)?;
        tables_agree(&ran)?;
        let timeline = ran.trace.timeline();
        for device in DEVICES {
            let of = timeline.devices.iter().find(|one| one.device == device);
            for (series, name) in [
                (Series::Requested, "requested"),
                (Series::Allocated, "allocated"),
                (Series::Reserved, "reserved"),
            ] {
                let spans = of.map_or(&[][..], |of| of.get(series));
                let most = spans.iter().map(|span| span.max).max().unwrap_or(0);
                prop_assert_eq!(most, ran.peak(device, name), "timeline: {} {}", device, name);
            }
        }
    }

    #[test]
    fn contexts_that_end_and_frees_that_are_lost(ops in ops()) {
        let ran = run(&ops, May::EndContexts);
        sums_agree(&ran, true)?;
        blocks_agree(&ran, true)?;
        exports_agree(&ran, true)?;
    }

    #[test]
    fn blocks_of_before_the_recording(ops in ops()) {
        let ran = run(&ops, May::FreeUnseen);
        sums_agree(&ran, true)?;
        blocks_agree(&ran, false)?;
        exports_agree(&ran, true)?;
        snapshots_agree(&ran)?;
        tables_agree(&ran)?;
    }

    #[test]
    fn a_ring_that_has_wrapped(ops in ops()) {
        let ran = run(&ops, May::Wrap);
        sums_agree(&ran, false)?;
        blocks_agree(&ran, false)?;
        exports_agree(&ran, false)?;
        snapshots_agree(&ran)?;
        tables_agree(&ran)?;
    }
}

//! Checks the agreement of commands and exports on recordings of real programs.

use std::path::PathBuf;

use super::exports::{metrics_agree, of_log, of_snapshot};
use super::left_at_end;
use crate::export::figures::{counters, held};
use crate::html::curves;
use crate::ledger::{Focus, Moment};
use crate::peak::Peak;
use crate::recording::{Recording, open};
use crate::report::{figures_of, summarize};
use gpushim_trace::Layer;

/// All of the recordings among the data of the tests.
fn recordings() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "gz"))
        .collect();
    paths.sort();
    paths
}

/// Checks the sums of one recording.
fn agrees(recording: Box<dyn Recording>) {
    let name = recording.path().display().to_string();
    let all = [recording];
    let recording = &*all[0];
    let (summary, figures) = (summarize(recording), figures_of(recording));
    let (told, drawn) = (counters(recording), curves(recording));
    let mut by_device = Vec::new();
    let (mut live, mut peak_of_each) = (0, 0);
    assert!(!summary.devices.is_empty(), "{name}");
    for (device, quick) in summary.devices.iter().zip(&figures.devices) {
        let ordinal = device.device.unwrap();
        let at = |of: &str| format!("{name}: {of} of gpu {ordinal}");
        assert_eq!(
            (device.requested, device.allocated),
            (quick.requested, quick.allocated)
        );
        assert_eq!(
            (device.reserved, device.in_use),
            (quick.reserved, quick.in_use)
        );
        let curve = |sum: &str| {
            let of = drawn
                .iter()
                .find(|(of, its, ..)| (*of, *its) == (ordinal, sum));
            of.map_or((0, 0), |(.., peak, end)| (*peak, *end))
        };
        let counted = |sum| {
            told.get(&(ordinal, sum))
                .and_then(|all| all.last().copied())
        };
        for (sum, gauge) in [
            ("requested", device.requested),
            ("allocated", device.allocated),
            ("reserved", device.reserved),
        ] {
            assert_eq!(curve(sum), (gauge.peak, gauge.end), "{}", at(sum));
            assert_eq!(counted(sum).unwrap_or(gauge.end), gauge.end, "{}", at(sum));
        }
        let (layer, gauge) = match &device.tensors {
            Some(tensors) => (Layer::Tensor, tensors.tensors),
            None => (Layer::Device, device.requested),
        };
        let focus = Focus {
            layer,
            device: Some(ordinal),
        };
        let at_moment = |moment| Peak::at(recording, focus, moment).bytes;
        assert_eq!(at_moment(Moment::Peak), gauge.peak, "{}", at("peak"));
        assert_eq!(at_moment(Moment::End), gauge.end, "{}", at("end"));
        assert_eq!(
            left_at_end(recording, focus),
            gauge.end,
            "{}",
            at("followed")
        );
        if gauge.peak > 0 {
            by_device.push((gauge.end, gauge.peak));
        }
        live += gauge.end;
        peak_of_each += gauge.peak;
    }
    let (_, live_of_profiles, peak_of_profiles) = held(recording);
    assert_eq!(live_of_profiles, live, "{name}: profiles");
    assert!(peak_of_profiles <= peak_of_each, "{name}: profiles");
    metrics_agree(&all).unwrap_or_else(|error| panic!("{name}: metrics: {error}"));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(
        of_log(&all, folder.path()),
        (live, peak_of_profiles),
        "{name}: RMM"
    );
    assert_eq!(
        of_snapshot(&all, folder.path()),
        by_device,
        "{name}: snapshot"
    );
}

#[test]
fn real_recordings() {
    let paths = recordings();
    assert!(paths.len() >= 10, "{paths:?}");
    for path in paths {
        agrees(open(&path).unwrap());
    }
}

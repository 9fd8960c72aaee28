//! Memory that is held and not used: fragmented, reserved and not handed out, or not of this process; as findings.

use super::{Finding, Kind};
use crate::fragmentation::FragmentationReport;
use crate::ledger::Moment;
use crate::output::answer::layer_name;
use crate::output::units::{bytes, percent};
use crate::recording::{Names, Recording};
use crate::report::figures::DeviceFigures;
use crate::report::overview::Overview;
use gpushim_trace::Layer;

/// A gap between two layers is a finding if it is this part of the larger one,
const SHARE: f64 = 0.2;
/// and at least this many bytes: caches of a few segments are normal.
const LEAST: u64 = 256 << 20;
/// Memory that this process does not hold is a finding from this many bytes on: contexts and libraries take as much;
const LEAST_ELSEWHERE: u64 = 2 << 30;
/// and only if the device was filled to this part: on a shared device it is no fault.
const NEARLY_FULL: f64 = 0.9;

/// What is fragmented, reserved and unused, and held by others.
pub fn find(recording: &dyn Recording, overview: &Overview, names: &mut dyn Names) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(fragmented(recording, overview, names));
    let is_fragmented = |of| found.iter().any(|one: &Finding| one.of == of);
    let [tensors, pool] = [Layer::Tensor, Layer::Device].map(layer_name);
    let known = [is_fragmented(tensors), is_fragmented(pool)];
    for device in &overview.summary.devices {
        let several = overview.summary.devices.len() > 1;
        let is_one_moment = recording.is_one_moment();
        let gaps = [
            (!known[0])
                .then(|| unused_by_framework(device, is_one_moment))
                .flatten(),
            (!known[1]).then(|| unused_by_pool(device)).flatten(),
            elsewhere(device, total(recording, device)),
        ];
        for gap in gaps.into_iter().flatten() {
            found.push(gap.finding(recording, device.device.filter(|_| several)));
        }
    }
    found
}

fn fragmented(
    recording: &dyn Recording,
    overview: &Overview,
    names: &mut dyn Names,
) -> Option<Finding> {
    if overview.is_long() {
        // What is unused is a finding by the sums; the command that it names says why.
        return None;
    }
    let focus = overview.layers.first()?.focus;
    let found = FragmentationReport::of(recording, focus, Moment::Peak, names);
    if !found.fragmentation.is_found() {
        return None;
    }
    let stuck = found.fragmentation.devices.iter().map(|room| room.stuck);
    Some(Finding {
        kind: Kind::Fragmentation,
        of: layer_name(focus.layer),
        text: found.verdict,
        bytes: stuck.max().unwrap_or(0),
        per_iteration: None,
        site: found.keepers.into_iter().next().map(|keeper| keeper.who),
        sure: true,
        why: "measured when most was reserved".to_string(),
        fix: found.advice.map(str::to_string),
        next: format!("gpushim fragmentation {}", recording.path().display()),
    })
}

/// Bytes that one layer holds above another.
struct Gap {
    kind: Kind,
    of: &'static str,
    text: String,
    bytes: u64,
    fix: Option<&'static str>,
    why: &'static str,
}

impl Gap {
    fn finding(self, recording: &dyn Recording, device: Option<u8>) -> Finding {
        let text = match device {
            Some(device) => format!("On gpu {device}: {}", self.text),
            None => self.text,
        };
        Finding {
            kind: self.kind,
            of: self.of,
            text,
            bytes: self.bytes,
            per_iteration: None,
            site: None,
            sure: true,
            why: self.why.to_string(),
            fix: self.fix.map(str::to_string),
            next: format!(
                "gpushim {} {}",
                self.kind.command(),
                recording.path().display()
            ),
        }
    }
}

/// Whether `bytes` are a large enough part of `of` bytes to be a finding.
fn is_much(bytes: u64, of: u64) -> bool {
    bytes >= LEAST && bytes as f64 >= SHARE * of as f64
}

/// `is_one_moment` of a recording without events, which shows what is cached then.
fn unused_by_framework(device: &DeviceFigures, is_one_moment: bool) -> Option<Gap> {
    let tensors = device.tensors.as_ref()?;
    let fix = if is_one_moment {
        "torch.cuda.empty_cache() gives it back; a recording with events would show whether it was needed"
    } else {
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or gpushim's allocator (`gpushim tune` says what fits)"
    };
    // What most was handed out of, at another time, was needed.
    let never_used = tensors.reserved_peak.saturating_sub(tensors.allocated_peak);
    let is_gap = is_much(tensors.unused.min(never_used), tensors.reserved_peak);
    is_gap.then(|| Gap {
        kind: Kind::Unused,
        of: layer_name(Layer::Tensor),
        text: match is_one_moment {
            true => unused_at_once(tensors.unused, tensors.reserved_peak),
            false => unused("the framework", tensors.unused, tensors.reserved_peak),
        },
        bytes: tensors.unused,
        fix: Some(fix),
        why: match is_one_moment {
            true => "measured when the snapshot was taken",
            false => "measured when most was reserved",
        },
    })
}

fn unused_by_pool(device: &DeviceFigures) -> Option<Gap> {
    // A snapshot has a framework's segments only, not what they were taken from.
    let bytes = device.unused.filter(|_| device.allocated.peak > 0)?;
    is_much(bytes, device.reserved.peak).then(|| Gap {
        kind: Kind::Unused,
        of: layer_name(Layer::Device),
        text: unused("the pools", bytes, device.reserved.peak),
        bytes,
        fix: Some("GPUSHIM_POLICY=vmm maps free pages to where they are needed; `gpushim tune` says what fits"),
        why: "measured when most was reserved",
    })
}

fn unused(by: &str, unused: u64, reserved: u64) -> String {
    format!(
        "When most was reserved, {}, {by} had not handed out {} of it ({}): cached memory that was not in use.",
        bytes(reserved),
        bytes(unused),
        percent(unused as f64, reserved as f64)
    )
}

/// The same of a snapshot without a history.
fn unused_at_once(unused: u64, reserved: u64) -> String {
    format!(
        "When the snapshot was taken, the framework had not handed out {} ({}) of the {} that it had reserved: cached \
         memory that was not in use.",
        bytes(unused),
        percent(unused as f64, reserved as f64),
        bytes(reserved)
    )
}

/// All memory of a device, bytes, if it is known.
fn total(recording: &dyn Recording, device: &DeviceFigures) -> Option<u64> {
    Some(recording.gpu(device.device?)?.bytes)
}

fn elsewhere(device: &DeviceFigures, total: Option<u64>) -> Option<Gap> {
    let in_use = device.in_use?;
    let is_full = |total: u64| in_use.peak as f64 >= NEARLY_FULL * total as f64;
    if !total.is_none_or(is_full) {
        return None;
    }
    let bytes_of_others = in_use.peak.checked_sub(device.reserved.peak)?;
    (bytes_of_others >= LEAST_ELSEWHERE && is_much(bytes_of_others, in_use.peak)).then(|| Gap {
        kind: Kind::Elsewhere,
        of: layer_name(Layer::Device),
        text: format!(
            "Up to {} of the device were in use, of which this process had reserved at most {}: {} belong to other \
             processes, to contexts and libraries, or to memory that is not traced.",
            bytes(in_use.peak),
            bytes(device.reserved.peak),
            bytes(bytes_of_others)
        ),
        bytes: bytes_of_others,
        fix: None,
        why: "by the highest levels of both",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::{Gauge, TensorFigures};

    const GIB: u64 = 1 << 30;

    fn gauge(peak: u64) -> Gauge {
        Gauge {
            peak,
            peak_ns: None,
            end: 0,
        }
    }

    fn device(framework: [u64; 2], pool: [u64; 2], in_use: u64) -> DeviceFigures {
        DeviceFigures {
            device: Some(0),
            requested: gauge(pool[0]),
            allocated: gauge(pool[0]),
            reserved: gauge(pool[1]),
            unused: Some(pool[1] - pool[0]),
            in_use: Some(gauge(in_use)),
            utilization: None,
            tensors: Some(TensorFigures {
                tensors: gauge(framework[0]),
                allocated_peak: framework[0],
                reserved_peak: framework[1],
                unused: framework[1] - framework[0],
                allocated_end: 0,
                reserved_end: 0,
                top_at_peak: Vec::new(),
                top_at_end: Vec::new(),
            }),
            top_at_peak: Vec::new(),
            top_at_end: Vec::new(),
        }
    }

    #[test]
    fn gaps_between_layers() {
        let even = device([4 * GIB, 4 * GIB + GIB / 2], [5 * GIB, 5 * GIB], 6 * GIB);
        assert!(unused_by_framework(&even, false).is_none());
        assert!(unused_by_pool(&even).is_none());
        assert!(elsewhere(&even, None).is_none());
        let wide = device([4 * GIB, 8 * GIB], [8 * GIB, 12 * GIB], 20 * GIB);
        assert_eq!(unused_by_framework(&wide, false).unwrap().bytes, 4 * GIB);
        assert_eq!(unused_by_pool(&wide).unwrap().bytes, 4 * GIB);
        let unpooled = device([4 * GIB, 4 * GIB], [0, 4 * GIB], 4 * GIB);
        assert!(unused_by_pool(&unpooled).is_none());
        let others = elsewhere(&wide, Some(21 * GIB)).unwrap();
        assert!(elsewhere(&wide, Some(80 * GIB)).is_none());
        assert_eq!(others.bytes, 8 * GIB);
        assert!(others.text.contains("8.0 GiB belong to other processes"));
        // A share that is large of a process that is small.
        let small = device([1 << 20, 100 << 20], [100 << 20, 300 << 20], GIB);
        assert!(unused_by_framework(&small, false).is_none());
        assert!(unused_by_pool(&small).is_none());
        assert!(elsewhere(&small, None).is_none());
    }
}

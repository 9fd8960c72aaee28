//! Findings of memory that is held and unused: fragmented, reserved and not handed out, or held
//! outside of the process.

use super::{Finding, Kind};
use crate::fragmentation::{Fragmentation, FragmentationReport};
use crate::ledger::{Focus, Moment};
use crate::output::answer::layer_name;
use crate::output::units::{bytes, percent};
use crate::recording::{Names, Recording};
use crate::report::figures::DeviceFigures;
use crate::report::overview::Overview;
use crate::unused::{Cause, Replays};
use gpushim_trace::Layer;

/// Least share of a gap between two layers in the larger one.
const SHARE: f64 = 0.2;
/// Least bytes of a gap; caches of a few segments are normal.
const LEAST: u64 = 256 << 20;
/// Least bytes outside of this process; contexts and libraries take as much.
const LEAST_ELSEWHERE: u64 = 2 << 30;
/// Least filled share of the device for such a finding. On a shared device with free memory it is
/// no fault.
const NEARLY_FULL: f64 = 0.9;

/// Finds fragmented memory, reserved and unused memory, and memory outside of this process.
pub fn find(recording: &dyn Recording, overview: &Overview, names: &mut dyn Names) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(fragmented(recording, overview, names));
    let is_fragmented = |of| found.iter().any(|one: &Finding| one.of == of);
    let [tensors, pool] = [Layer::Tensor, Layer::Device].map(layer_name);
    let known = [is_fragmented(tensors), is_fragmented(pool)];
    for device in &overview.summary.devices {
        let several = overview.summary.devices.len() > 1;
        let unused = [
            Unused::by_framework(device).filter(|_| !known[0]),
            Unused::by_pool(device).filter(|_| !known[1]),
        ];
        for one in unused.into_iter().flatten() {
            found.push(one.finding(recording, overview, several, names));
        }
        found.extend(elsewhere(recording, device, several));
    }
    found
}

/// Finds fragmentation when most was in use. Without a finding it looks at the moment when most was
/// reserved, for the bytes that were reserved and never used.
fn fragmented(
    recording: &dyn Recording,
    overview: &Overview,
    names: &mut dyn Names,
) -> Option<Finding> {
    if overview.is_long() {
        // The sums also show unused memory; the command that the finding names shows the reason.
        return None;
    }
    let focus = overview.layers.first()?.focus;
    let [never_used, unused, ns] = fullest(overview, focus.layer)?;
    let at = format!(" --at {:.9}", ns as f64 / 1e9);
    let moments = [
        (Moment::Ns(ns), unused, at, "measured when most was in use"),
        (
            Moment::Peak,
            never_used,
            String::new(),
            "measured when most was reserved",
        ),
    ];
    // Fragmented bytes are at most the free bytes, so moments with little free memory are skipped.
    let mut moments = moments.into_iter().filter(|(_, most, ..)| *most >= LEAST);
    moments.find_map(|(moment, most, at, why)| {
        let found = FragmentationReport::of(recording, focus, moment, names);
        let devices = found.fragmentation.devices.iter();
        let worst = devices.max_by_key(|room| room.stuck)?;
        let bytes = worst.stuck.min(most);
        (found.fragmentation.is_found() && is_much(bytes, worst.reserved)).then(|| Finding {
            kind: Kind::Fragmentation,
            of: layer_name(focus.layer),
            text: found.verdict,
            bytes,
            per_iteration: None,
            kept_by: None,
            site: found.keepers.into_iter().next().map(|keeper| keeper.who),
            sure: true,
            why: why.to_string(),
            fix: found.advice,
            next: format!("gpushim fragmentation{at} {}", recording.path().display()),
        })
    })
}

/// Figures of the device on which a layer left most unused:
///
/// 1. Bytes that were reserved and never handed out.
/// 2. Bytes that were free when most was handed out.
/// 3. Time of that moment, ns since the start.
fn fullest(overview: &Overview, layer: Layer) -> Option<[u64; 3]> {
    let devices = overview.summary.devices.iter();
    let of_layer = |device: &DeviceFigures| match layer {
        Layer::Tensor => device.tensors.as_ref().map(|own| {
            let never_used = own.reserved_peak.saturating_sub(own.allocated_peak);
            [never_used, own.unused, own.then_ns]
        }),
        _ => {
            let never_used = device.reserved.peak.saturating_sub(device.allocated.peak);
            Some([never_used, device.unused.unwrap_or(0), device.then_ns])
        }
    };
    devices.filter_map(of_layer).max()
}

/// Returns true if `bytes` are a large enough part of `of` bytes to be a finding.
fn is_much(bytes: u64, of: u64) -> bool {
    bytes >= LEAST && bytes as f64 >= SHARE * of as f64
}

/// Reserved memory that was not handed out when most was handed out.
struct Unused {
    layer: Layer,
    device: Option<u8>,
    bytes: u64,
    /// Bytes that were reserved at that moment.
    reserved: u64,
    most: u64,
    /// Time of that moment, ns since the start.
    ns: u64,
}

impl Unused {
    fn by_framework(device: &DeviceFigures) -> Option<Unused> {
        let tensors = device.tensors.as_ref()?;
        is_much(tensors.unused, tensors.reserved_then).then_some(Unused {
            layer: Layer::Tensor,
            device: device.device,
            bytes: tensors.unused,
            reserved: tensors.reserved_then,
            most: tensors.reserved_peak,
            ns: tensors.then_ns,
        })
    }

    fn by_pool(device: &DeviceFigures) -> Option<Unused> {
        // A snapshot has only a framework's segments, and no driver memory behind them.
        let bytes = device.unused.filter(|_| device.allocated.peak > 0)?;
        is_much(bytes, device.reserved_then).then_some(Unused {
            layer: Layer::Device,
            device: device.device,
            bytes,
            reserved: device.reserved_then,
            most: device.reserved.peak,
            ns: device.then_ns,
        })
    }

    fn finding(
        self,
        recording: &dyn Recording,
        overview: &Overview,
        several: bool,
        names: &mut dyn Names,
    ) -> Finding {
        let focus = Focus {
            layer: self.layer,
            device: self.device,
        };
        let device = self.device.filter(|_| !overview.is_long());
        let replays = device.and_then(|device| Replays::of(recording, focus, device));
        let cause = replays
            .as_ref()
            .and_then(|replays| Cause::of(recording, focus, replays, self.bytes, self.most));
        let mut text = self.sentence(recording.is_one_moment(), several);
        let mut site = None;
        // Without a block that keeps the memory, another allocator could have used it.
        let more = match cause.is_some() || replays.is_none() {
            true => "fragmentation",
            false => "replay",
        };
        if cause.is_none() && !overview.is_long() {
            let lies = self.lies(recording, focus);
            text.extend(lies.map(|lies| format!(" {lies}")));
        }
        let fix = match (&cause, &replays) {
            (Some(cause), _) => {
                site = cause.site(names);
                text.push_str(&format!(" {}", cause.sentence(site.as_ref())));
                Some(cause.fix())
            }
            // A replay that does not reserve about the same bytes proves nothing about other
            // settings.
            (None, Some(replays)) if replays.reserved.abs_diff(self.most) <= self.bytes / 4 => {
                replays.advice(self.bytes)
            }
            (None, None) if recording.is_one_moment() => self.given_back(recording, focus),
            _ => None,
        };
        Finding {
            kind: Kind::Unused,
            of: layer_name(self.layer),
            text,
            bytes: self.bytes,
            per_iteration: None,
            site,
            kept_by: None,
            sure: true,
            why: match recording.is_one_moment() {
                true => "measured when the snapshot was taken",
                false => "measured when most was in use",
            }
            .to_string(),
            fix,
            next: format!("gpushim {more} {}", recording.path().display()),
        }
    }

    fn sentence(&self, is_one_moment: bool, several: bool) -> String {
        let of = match self.device.filter(|_| several) {
            Some(device) => format!(" on gpu {device}"),
            None => String::new(),
        };
        let by = match self.layer {
            Layer::Tensor => "the framework",
            _ => "gpushim's pools",
        };
        let when = match is_one_moment {
            true => "the snapshot was taken",
            false => "most was in use",
        };
        format!(
            "{} ({}) of the {} that {by} had reserved{of} were not in use when {when}.",
            bytes(self.bytes),
            percent(self.bytes as f64, self.reserved as f64),
            bytes(self.reserved)
        )
    }

    /// Formats the bytes in segments that were free as a whole, and the bytes beside blocks.
    fn lies(&self, recording: &dyn Recording, focus: Focus) -> Option<String> {
        let layout = Fragmentation::at(recording, focus, Moment::Ns(self.ns));
        let room = layout
            .devices
            .iter()
            .find(|room| room.device == self.device)?;
        let [empty, stuck] = [room.empty, room.stuck].map(|part| part.min(self.bytes));
        Some(match (empty, stuck) {
            (0, 0) => return None,
            (empty, 0) => format!(
                "{} lay in segments that were free as a whole.",
                bytes(empty)
            ),
            (0, stuck) => format!("{} lay beside blocks that were in use.", bytes(stuck)),
            _ => format!(
                "{} lay in segments that were free as a whole, {} beside blocks that were in use.",
                bytes(empty),
                bytes(stuck)
            ),
        })
    }

    /// Advises `empty_cache` if whole free segments have more than half of the bytes.
    fn given_back(&self, recording: &dyn Recording, focus: Focus) -> Option<String> {
        let layout = Fragmentation::at(recording, focus, Moment::Ns(self.ns));
        let empty = layout.devices.iter().map(|room| room.empty).max()?;
        (empty > self.bytes / 2)
            .then(|| format!("torch.cuda.empty_cache() gives {} of it back", bytes(empty)))
    }
}

fn elsewhere(recording: &dyn Recording, device: &DeviceFigures, several: bool) -> Option<Finding> {
    let total = device
        .device
        .and_then(|ordinal| Some(recording.gpu(ordinal)?.bytes));
    let (bytes_of_others, text) = others(device, total)?;
    let of = match device.device.filter(|_| several) {
        Some(device) => format!("On gpu {device}: "),
        None => String::new(),
    };
    Some(Finding {
        kind: Kind::Elsewhere,
        of: layer_name(Layer::Device),
        text: format!("{of}{text}"),
        bytes: bytes_of_others,
        per_iteration: None,
        kept_by: None,
        site: None,
        sure: true,
        why: "by the highest levels of both".to_string(),
        fix: None,
        next: format!("gpushim timeline {}", recording.path().display()),
    })
}

/// Bytes in use on a device that this process does not hold, and a sentence. `total` is the size of
/// the device in bytes.
fn others(device: &DeviceFigures, total: Option<u64>) -> Option<(u64, String)> {
    let in_use = device.in_use?;
    let is_full = |total: u64| in_use.peak as f64 >= NEARLY_FULL * total as f64;
    if !total.is_none_or(is_full) {
        return None;
    }
    let of_others = in_use.peak.checked_sub(device.reserved.peak)?;
    (of_others >= LEAST_ELSEWHERE && is_much(of_others, in_use.peak)).then(|| {
        let text = format!(
            "Up to {} of the device were in use, of which this process had reserved at most {}: {} belong to other \
             processes, to contexts and libraries, or to memory that is not traced.",
            bytes(in_use.peak),
            bytes(device.reserved.peak),
            bytes(of_others)
        );
        (of_others, text)
    })
}

#[cfg(test)]
mod planted;
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
            reserved_then: pool[1],
            then_ns: 0,
            in_use: Some(gauge(in_use)),
            utilization: None,
            tensors: Some(TensorFigures {
                tensors: gauge(framework[0]),
                allocated_peak: framework[0],
                reserved_peak: framework[1],
                unused: framework[1] - framework[0],
                reserved_then: framework[1],
                then_ns: 0,
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
        assert!(Unused::by_framework(&even).is_none());
        assert!(Unused::by_pool(&even).is_none());
        assert!(others(&even, None).is_none());
        let wide = device([4 * GIB, 8 * GIB], [8 * GIB, 12 * GIB], 20 * GIB);
        assert_eq!(Unused::by_framework(&wide).unwrap().bytes, 4 * GIB);
        assert_eq!(Unused::by_pool(&wide).unwrap().bytes, 4 * GIB);
        let unpooled = device([4 * GIB, 4 * GIB], [0, 4 * GIB], 4 * GIB);
        assert!(Unused::by_pool(&unpooled).is_none());
        let (bytes, text) = others(&wide, Some(21 * GIB)).unwrap();
        assert!(others(&wide, Some(80 * GIB)).is_none());
        assert_eq!(bytes, 8 * GIB);
        assert!(text.contains("8.0 GiB belong to other processes"));
        // A large share of a small process.
        let small = device([1 << 20, 100 << 20], [100 << 20, 300 << 20], GIB);
        assert!(Unused::by_framework(&small).is_none());
        assert!(Unused::by_pool(&small).is_none());
        assert!(others(&small, None).is_none());
    }
}

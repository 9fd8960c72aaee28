//! The views of a page, with their curves and blocks.

use serde::Serialize;

use crate::error::Result;
use crate::html::memory::MemoryHistory;
use crate::html::pack::Pack;
use crate::html::series::from_spans;
use crate::ledger::Sum;
use crate::recording::Recording;
use crate::report::Summary;
use gpushim_trace::{DeviceTimeline, Event, Layer, Series};

/// A recording among others, on a page of several: the view that is looked at first.
#[derive(Default, Serialize)]
pub struct Overview {
    layer: &'static str,
    device: Option<u8>,
    peak: u64,
    peak_ns: u64,
    end_ns: u64,
    /// The most in each of [`SPARK`] equal stretches.
    spark: Vec<u64>,
}

/// Stretches of a curve in an overview.
const SPARK: usize = 256;

/// A view as the page gets it.
#[derive(Serialize)]
struct PageView {
    layer: &'static str,
    device: Option<u8>,
    peak: u64,
    peak_ns: u64,
    end: u64,
    /// Curves of the view, by the name of their sum, each the number of two columns.
    curves: Vec<(&'static str, usize)>,
}

impl MemoryHistory {
    /// Puts all of it into the payload.
    pub fn pack(
        self,
        recording: &dyn Recording,
        summary: &Summary,
        pack: &mut Pack,
    ) -> Result<Overview> {
        let timeline = recording.timeline();
        let is_whole = !recording.coverage().wrapped;
        let first_ns = summary.first_ns;
        let mut views: Vec<PageView> = Vec::new();
        for (layer, device) in &self.views {
            views.push(PageView {
                layer: layer_name(*layer),
                device: (*device != Event::NO_DEVICE).then_some(*device),
                peak: 0,
                peak_ns: 0,
                end: 0,
                curves: Vec::new(),
            });
        }
        let mut number = 0;
        let mut column = |pack: &mut Pack, buckets: &[(u64, u64)]| {
            pack.delta(
                &format!("curve{number}_min"),
                buckets.iter().map(|(least, _)| *least),
            );
            // How much more the most is.
            let more = buckets
                .iter()
                .map(|(least, most)| most.saturating_sub(*least));
            pack.plain(&format!("curve{number}_more"), more);
            number += 1;
            number - 1
        };
        let mut width_ns = 1;
        let (mut best, mut overview) = (None, Overview::default());
        for ((device, sum), curve) in self.curves {
            width_ns = curve.width_ns();
            let (peak, end) = (curve.peak(), curve.end());
            let spans = |series: Series| {
                let known = timeline.devices.iter().find(|known| known.device == device);
                known.map_or(&[][..], |known: &DeviceTimeline| known.get(series))
            };
            let (name, series) = match sum {
                Sum::Live(Layer::Tensor) => ("live", Some(Series::Tensors)),
                Sum::Live(Layer::Device) => ("live", Some(Series::Requested)),
                Sum::Live(_) => ("live", None),
                Sum::Allocated => ("allocated", Some(Series::Allocated)),
                Sum::Reserved => ("reserved", Some(Series::Reserved)),
                Sum::FrameworkAllocated => ("framework allocated", Some(Series::Tensors)),
                Sum::FrameworkReserved => ("framework reserved", Some(Series::TensorsReserved)),
                Sum::InUse => continue,
            };
            // Where its segments are events, these say it at every moment, and the framework only
            // with its tensors.
            if recording.caching().is_some() && name.starts_with("framework") {
                continue;
            }
            let before = series.map_or(&[][..], spans);
            let before = if is_whole { &[] } else { before };
            let buckets = curve.finish(first_ns, before);
            let at = column(pack, &buckets);
            if let Sum::Live(layer) = sum {
                // Tensors before device memory before the rest, and then the larger.
                let rank = (std::cmp::Reverse(layer as u8), peak.0);
                if best.is_none_or(|best| rank > best) {
                    best = Some(rank);
                    let each = buckets.len().div_ceil(SPARK).max(1);
                    let most = |part: &[(u64, u64)]| part.iter().map(|(_, most)| *most).max();
                    overview = Overview {
                        layer: layer_name(layer),
                        device: (device != Event::NO_DEVICE).then_some(device),
                        peak: peak.0,
                        peak_ns: peak.1,
                        end_ns: self.end_ns,
                        spark: buckets.chunks(each).filter_map(most).collect(),
                    };
                }
            }
            for (page, (layer, of_device)) in views.iter_mut().zip(&self.views) {
                let is_its = match sum {
                    Sum::Live(of) => of == *layer,
                    Sum::Allocated => *layer == Layer::Device,
                    Sum::Reserved => matches!(layer, Layer::Device | Layer::Tensor),
                    _ => *layer == Layer::Tensor,
                };
                if !is_its || device != *of_device {
                    continue;
                }
                if matches!(sum, Sum::Live(_)) {
                    (page.peak, page.peak_ns, page.end) = (peak.0, peak.1, end);
                }
                page.curves.push((name, at));
            }
        }
        for device in &timeline.devices {
            let spans = device.get(Series::Driver);
            if spans.is_empty() {
                continue;
            }
            let at = column(pack, &from_spans(self.end_ns, self.buckets, spans));
            let of_device = |view: &&mut PageView| {
                view.device == Some(device.device) && matches!(view.layer, "tensor" | "device")
            };
            for page in views.iter_mut().filter(of_device) {
                page.curves.push(("driver", at));
            }
        }
        pack.head("bucket_ns", &width_ns)?;
        pack.head("views", &views)?;
        self.blocks.pack(pack)?;
        Ok(overview)
    }
}

/// Name of a layer in a page.
pub fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Tensor => "tensor",
        Layer::Device => "device",
        Layer::Managed => "managed",
        Layer::Host => "host",
        Layer::Mapping => "mapping",
    }
}

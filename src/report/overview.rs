//! Data of a report, from two passes over the events: one for sums, peaks and loops, one for
//! blocks.

use super::complete::complete;
use super::figures::Summary;
use super::summary::{PeakOf, SummaryBuilder};
use crate::device_memory::{MemorySums, When};
use crate::ledger::{Block, Focus};
use crate::loops::{Follow, Followed, Found, Given, Iterations, Search};
use crate::oom::Shortage;
use crate::peak::Peak;
use crate::recording::{Reader, Recording, read};
use gpushim_trace::{Event, Layer};

/// Number of first events in which the device of a process is searched.
const FIRST: usize = 100_000;

/// Most stacks that are shown for a moment.
pub(crate) const HOLDERS: usize = 5;

/// Number of events above which a recording is long; a ring of the default size holds fewer.
/// Further passes over a long recording are made only if its coarse picture shows a reason.
const LONG: u64 = 1 << 20;

/// Data for the report of a run.
#[derive(Debug)]
pub struct Overview {
    /// Figures of the whole run.
    pub summary: Summary,
    /// Findings of each layer with blocks. The main layer is first: tensors, or else device memory.
    pub layers: Vec<LayerFindings>,
    /// The first requests that ran out of memory, with the holders of the rest.
    pub shortages: Vec<Shortage>,
    /// Memory of devices, by owner.
    pub memory_sums: MemorySums,
}

/// Findings about the blocks of a layer.
#[derive(Debug)]
pub struct LayerFindings {
    /// Layer of the blocks, on all devices.
    pub focus: Focus,
    /// Blocks of the layer over the passes of loops.
    pub followed: Followed,
    /// Holders at the peak of each device. Their sum is below the peak if blocks from before the
    /// first event are unknown.
    pub peaks: Vec<(PeakOf, Peak)>,
    /// The highest peak and its live blocks, if the events around it were recorded.
    pub around: Option<(PeakOf, Vec<Block>)>,
}

/// Returns the figures of a recording, from the passes of [`Overview::of`].
pub fn summarize(recording: &dyn Recording) -> Summary {
    Overview::of(recording, None).summary
}

/// Returns the figures of a recording as in its report, without sizes and stacks. It takes one
/// pass, or two if the recording names several devices.
pub fn figures_of(recording: &dyn Recording) -> Summary {
    let pass = |only| {
        let mut builder = SummaryBuilder::new(recording, only);
        read(recording, &mut [&mut builder]);
        builder
    };
    let mut builder = pass(device_of(recording));
    if let Some(only) = builder.other_only() {
        builder = pass(only);
    }
    builder.settle(recording);
    let mut summary = builder.summary(&[]);
    if summary.events.wrapped {
        complete(&mut summary, &recording.timeline());
    }
    summary
}

impl Overview {
    /// True if another pass over the events takes long.
    pub fn is_long(&self) -> bool {
        self.summary.events.readable > LONG
    }

    /// Reads a recording in two passes. A further pass is needed if it names several devices and
    /// some of its events name none. `given` is the start of its iterations according to the user.
    pub fn of(recording: &dyn Recording, given: Option<&Given>) -> Overview {
        let layer = |layer: Layer| Focus {
            layer,
            device: None,
        };
        let layers = [Layer::Tensor, Layer::Device, Layer::Host, Layer::Managed].map(layer);
        let mut builder = SummaryBuilder::new(recording, device_of(recording));
        let mut search = Search::new(recording);
        match given {
            Some(_) => read(recording, &mut [&mut builder]),
            None => read(recording, &mut [&mut builder, &mut search]),
        }
        if let Some(only) = builder.other_only() {
            builder = SummaryBuilder::new(recording, only);
            read(recording, &mut [&mut builder]);
        }
        builder.settle(recording);
        let memory_sums = std::mem::replace(&mut builder.memory_sums, MemorySums::new(When::End));
        let peaks = builder.peaks();
        let mut shortages = std::mem::take(&mut builder.shortages.found);
        let has_tensors = builder.has(Layer::Tensor);
        let main = if has_tensors {
            Layer::Tensor
        } else {
            Layer::Device
        };
        let found = match given {
            Some(given) => Found::given(recording, given),
            None => search.finish(layer(main)),
        };
        // The holders of a shortage are those of the main layer.
        let mut follows = Vec::new();
        for focus in layers {
            if !builder.has(focus.layer) && focus.layer != main {
                continue;
            }
            let its: Vec<PeakOf> = peaks
                .iter()
                .filter(|peak| peak.focus.layer == focus.layer)
                .copied()
                .collect();
            let mut moments: Vec<u64> = its.iter().map(|peak| peak.ticket).collect();
            if focus.layer == main {
                moments.extend(shortages.iter().map(|one| one.ticket));
            }
            let highest = its.iter().max_by_key(|peak| peak.bytes);
            let watched = highest.filter(|_| focus.layer == main);
            let watched = watched.map(|peak| peak.ticket);
            let follow = Follow::new(recording, focus, &found, &moments, watched);
            follows.push((focus, its, follow));
        }
        let mut readers: Vec<&mut dyn Reader> = Vec::new();
        for (.., follow) in &mut follows {
            readers.push(follow);
        }
        read(recording, &mut readers);
        let mut told = Vec::new();
        let mut live_at_peaks = Vec::new();
        for (focus, its, follow) in follows {
            let mut followed = follow.finish();
            let at_peaks = std::mem::take(&mut followed.live_at);
            let mut moments = at_peaks.into_iter();
            for (peak, mut live) in its.into_iter().zip(moments.by_ref()) {
                live.retain(|block| peak.focus.device == Some(builder.ordinal(block.device)));
                live_at_peaks.push((peak, live));
            }
            for (one, live) in shortages.iter_mut().zip(moments) {
                one.held_by(recording, &live);
                one.as_told(recording);
            }
            told.push(LayerFindings::new(
                recording,
                focus,
                followed,
                &live_at_peaks,
            ));
        }
        told.sort_by_key(|told| told.focus.layer != main);
        Overview {
            summary: builder.summary(&live_at_peaks),
            layers: told,
            shortages,
            memory_sums,
        }
    }
}

impl LayerFindings {
    fn new(
        recording: &dyn Recording,
        focus: Focus,
        followed: Followed,
        live_at_peaks: &[(PeakOf, Vec<Block>)],
    ) -> LayerFindings {
        let its = || {
            let all = live_at_peaks.iter();
            all.filter(|(peak, _)| peak.focus.layer == focus.layer)
        };
        let peak = |(peak, live): &(PeakOf, Vec<Block>)| {
            let at = (peak.ns, peak.ticket);
            (*peak, Peak::of(recording, at, live))
        };
        let around = followed.journal.as_ref().and_then(|journal| {
            let (peak, live) = its().find(|(peak, _)| peak.ticket == journal.moment())?;
            Some((*peak, live.clone()))
        });
        LayerFindings {
            focus,
            peaks: its().map(peak).collect(),
            around,
            followed,
        }
    }

    /// Returns the iterations, if there are any.
    pub fn iterations(&self) -> Option<&Iterations> {
        self.followed.iterations.as_ref()
    }
}

/// Device of the first event that names one, among the first [`FIRST`] events.
fn device_of(recording: &dyn Recording) -> Option<u8> {
    let mut events = recording.events().take(FIRST).map(|record| record.event);
    let is_placed = |event: &Event| matches!(event.class.layer(), Layer::Tensor | Layer::Device);
    let first = events.find(|event| is_placed(event) && event.device != Event::NO_DEVICE);
    first.map(|event| event.device)
}

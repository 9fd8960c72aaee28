//! All that a report tells of a run, in two passes over its events: the first keeps the books, finds the peaks
//! and what tells the iterations; the second follows the blocks.

use super::figures::Summary;
use super::summary::{Books, PeakOf};
use crate::growth::Growth;
use crate::iterations::{Follow, Followed, Iterations, Journal, Search};
use crate::leaks::Leaks;
use crate::ledger::{Block, Focus};
use crate::oom::Shortage;
use crate::peak::Peak;
use crate::recording::{Reader, Recording, read};
use gpushim_trace::{Event, Layer};

/// Events that are looked at to learn which device a process uses.
const FIRST: usize = 100_000;

/// All of a run.
#[derive(Debug)]
pub struct Overview {
    /// Its figures.
    pub summary: Summary,
    /// What is told of the blocks of each layer that has any: of tensors, or else of device memory, first.
    pub layers: Vec<Told>,
    /// Requests that could not be met, the first ones, with who held the rest.
    pub shortages: Vec<Shortage>,
}

/// What is told of the blocks of a layer.
#[derive(Debug)]
pub struct Told {
    /// Which.
    pub focus: Focus,
    /// Its iterations, if there are any.
    pub iterations: Option<Iterations>,
    /// Whether it grows; `None` without iterations.
    pub growth: Option<Growth>,
    /// What is left behind.
    pub leaks: Leaks,
    /// By device, who held how much when most was live: that may come to less than the peak, where what was live
    /// when the events begin is not known.
    pub peaks: Vec<(PeakOf, Peak)>,
    /// Of the highest of these, what was live and what happened around it.
    pub around: Option<(PeakOf, Vec<Block>, Journal)>,
}

/// The figures of a recording. Goes through it twice, see [`Overview`].
pub fn summarize(recording: &dyn Recording) -> Summary {
    Overview::of(recording).summary
}

impl Overview {
    /// Goes through a recording twice; a third time where it names several devices, and none with some events.
    pub fn of(recording: &dyn Recording) -> Overview {
        let layer = |layer| Focus {
            layer,
            device: None,
        };
        let layers = [Layer::Tensor, Layer::Device, Layer::Host, Layer::Managed].map(layer);
        let mut books = Books::new(recording, device_of(recording));
        let mut searches = layers.map(|focus| Search::new(recording, focus));
        let mut readers: Vec<&mut dyn Reader> = vec![&mut books];
        for search in &mut searches {
            readers.push(search);
        }
        read(recording, &mut readers);
        if let Some(only) = books.other_only() {
            books = Books::new(recording, only);
            read(recording, &mut [&mut books]);
        }
        books.settle(recording);
        let peaks = books.peaks();
        let mut shortages = std::mem::take(&mut books.shortages.found);
        let has_tensors = books.has(Layer::Tensor);
        let main = if has_tensors {
            Layer::Tensor
        } else {
            Layer::Device
        };
        // Shortages are told with who held what the first layer is about.
        let mut follows = Vec::new();
        for (focus, search) in layers.into_iter().zip(searches) {
            if !books.has(focus.layer) && focus.layer != main {
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
            // Below tensors, what device memory does is a framework's own affair.
            let locator = if focus.layer == Layer::Device && has_tensors {
                None
            } else {
                search.choose()
            };
            let highest = its.iter().max_by_key(|peak| peak.bytes);
            let watched = highest.filter(|_| focus.layer == main);
            let watched = watched.map(|peak| peak.ticket);
            let follow = Follow::new(recording, focus, locator, &moments, watched);
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
                live.retain(|block| peak.focus.device == Some(books.ordinal(block.device)));
                live_at_peaks.push((peak, live));
            }
            for (one, live) in shortages.iter_mut().zip(moments) {
                one.held_by(recording, &live);
            }
            told.push(Told::new(recording, focus, followed, &live_at_peaks));
        }
        told.sort_by_key(|told| told.focus.layer != main);
        Overview {
            summary: books.summary(&live_at_peaks),
            layers: told,
            shortages,
        }
    }
}

impl Told {
    fn new(
        recording: &dyn Recording,
        focus: Focus,
        followed: Followed,
        live_at_peaks: &[(PeakOf, Vec<Block>)],
    ) -> Told {
        let its = || {
            let all = live_at_peaks.iter();
            all.filter(|(peak, _)| peak.focus.layer == focus.layer)
        };
        let iterations = followed.iterations;
        let live = &followed.live_at_last;
        let growth = iterations
            .as_ref()
            .map(|all| Growth::new(recording, all, followed.levels, live));
        let peak = |(peak, live): &(PeakOf, Vec<Block>)| {
            let at = (peak.ns, peak.ticket);
            (*peak, Peak::of(recording, at, live))
        };
        let around = followed.journal.and_then(|journal| {
            let (peak, live) = its().find(|(peak, _)| peak.ticket == journal.moment())?;
            Some((*peak, live.clone(), journal))
        });
        Told {
            focus,
            growth,
            leaks: Leaks::new(recording, iterations.as_ref(), followed.last_ns, live),
            peaks: its().map(peak).collect(),
            around,
            iterations,
        }
    }
}

/// The device that the first events name which name one.
fn device_of(recording: &dyn Recording) -> Option<u8> {
    let mut events = recording.events().take(FIRST).map(|record| record.event);
    let is_placed = |event: &Event| matches!(event.class.layer(), Layer::Tensor | Layer::Device);
    let first = events.find(|event| is_placed(event) && event.device != Event::NO_DEVICE);
    first.map(|event| event.device)
}

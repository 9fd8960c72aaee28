//! Bytes in use now, and their peak since the program last asked: for programs that watch their own
//! memory.
//!
//! The sums of the trace are kept per thread and have no peak. All threads share these figures,
//! which costs each allocation of a busy process some nanoseconds. So they are kept only once the
//! program has asked for them.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use gpushim_trace::Layer;
use gpushim_trace::layout::totals::{DEVICES, LAYERS};

use crate::record::{pause, trace};

/// Every layer, in the order of the numbers.
const ALL: [Layer; LAYERS] = [
    Layer::Tensor,
    Layer::Device,
    Layer::Managed,
    Layer::Host,
    Layer::Mapping,
];

static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// Bytes of one kind of memory on one device. Negative for a moment if a free is counted before its
/// allocation.
struct Figure {
    now: AtomicI64,
    peak: AtomicI64,
}

static FIGURES: [[Figure; DEVICES]; LAYERS] = [const {
    [const {
        Figure {
            now: AtomicI64::new(0),
            peak: AtomicI64::new(0),
        }
    }; DEVICES]
}; LAYERS];

fn figure(layer: Layer, device: u8) -> Option<&'static Figure> {
    let row = usize::from(device).min(DEVICES - 1);
    FIGURES.get(layer as usize)?.get(row)
}

/// Counts a block of this many bytes that was handed out.
#[inline(always)]
pub fn grew(layer: Layer, device: u8, bytes: u64) {
    if IS_KEPT.load(Ordering::Relaxed) {
        change(layer, device, bytes as i64);
    }
}

/// Counts a block of this many bytes that was freed.
#[inline(always)]
pub fn shrank(layer: Layer, device: u8, bytes: u64) {
    if IS_KEPT.load(Ordering::Relaxed) {
        change(layer, device, (bytes as i64).wrapping_neg());
    }
}

#[inline(never)]
fn change(layer: Layer, device: u8, bytes: i64) {
    let Some(figure) = figure(layer, device) else {
        return;
    };
    let now = figure
        .now
        .fetch_add(bytes, Ordering::Relaxed)
        .wrapping_add(bytes);
    if bytes > 0 && now > figure.peak.load(Ordering::Relaxed) {
        figure.peak.fetch_max(now, Ordering::Relaxed);
    }
}

/// Counts memory that ended with its context. If the trace has all blocks, its sums are taken.
/// Otherwise these bytes are subtracted from the device's, down to 0.
pub fn lost(device: Option<i32>, bytes: u64) {
    if !IS_KEPT.load(Ordering::Relaxed) {
        return;
    }
    if trace::opened().is_some() && !pause::was_ever() {
        take_sums();
    } else if let Some(figure) = device.and_then(|device| figure(Layer::Device, device as u8)) {
        let less = |now: i64| Some(now.saturating_sub(bytes as i64).max(0));
        let _ = figure
            .now
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Takes the live bytes of the trace.
fn take_sums() {
    let Some(writer) = trace::opened() else {
        return;
    };
    for (layer, figures) in ALL.into_iter().zip(&FIGURES) {
        for (figure, bytes) in figures.iter().zip(writer.live_bytes(layer)) {
            figure.now.store(bytes as i64, Ordering::Relaxed);
            figure.peak.fetch_max(bytes as i64, Ordering::Relaxed);
        }
    }
}

/// Begins to keep the figures, from the live bytes of the trace. Allocations and frees of other
/// threads in these microseconds may be missed.
fn keep() {
    static START: Once = Once::new();
    START.call_once(|| {
        IS_KEPT.store(true, Ordering::SeqCst);
        take_sums();
    });
}

/// Returns the layer of a number; `None` for an unknown number.
pub fn layer(number: usize) -> Option<Layer> {
    ALL.get(number).copied()
}

/// Returns bytes in use now, and their peak since [`reset_peak`] or the first call of either.
pub fn of(layer: Layer, device: u8) -> (u64, u64) {
    keep();
    let read = |word: &AtomicI64| u64::try_from(word.load(Ordering::Relaxed)).unwrap_or(0);
    figure(layer, device).map_or((0, 0), |figure| (read(&figure.now), read(&figure.peak)))
}

/// Sets all peaks to the present figures.
pub fn reset_peak() {
    keep();
    for figure in FIGURES.iter().flatten() {
        figure
            .peak
            .store(figure.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

//! Bytes in use now, and the most since the program last asked: for programs that watch their own memory.
//!
//! The sums of the trace are kept per thread and have no highest level. These are shared by all threads, which costs
//! each allocation of a busy process some nanoseconds; so they are kept only once the program has asked for them.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use gpushim_trace::Layer;
use gpushim_trace::layout::totals::{DEVICES, LAYERS};

use crate::record::{pause, trace};

/// Every layer, by number.
const ALL: [Layer; LAYERS] = [
    Layer::Tensor,
    Layer::Device,
    Layer::Managed,
    Layer::Host,
    Layer::Mapping,
];

static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// One kind of memory on one device, bytes. A free may be seen before its allocation: then it is below zero for a moment.
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

/// A block of this many bytes was handed out.
#[inline(always)]
pub fn grew(layer: Layer, device: u8, bytes: u64) {
    if IS_KEPT.load(Ordering::Relaxed) {
        change(layer, device, bytes as i64);
    }
}

/// A block of this many bytes was given back.
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

/// Memory went with its context. The trace's sums know how much is left, if it has all blocks; otherwise it is these
/// bytes of the device's that went, or all that there were.
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

/// What the trace has as live.
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

/// Begins to keep the figures, with what the trace has as live; what other threads allocate and free in these
/// microseconds may be missed.
fn keep() {
    static START: Once = Once::new();
    START.call_once(|| {
        IS_KEPT.store(true, Ordering::SeqCst);
        take_sums();
    });
}

/// The layer of a number; `None` for one that there is not.
pub fn layer(number: usize) -> Option<Layer> {
    ALL.get(number).copied()
}

/// Bytes in use now, and the most since [`reset_peak`] or the first call of either.
pub fn of(layer: Layer, device: u8) -> (u64, u64) {
    keep();
    let read = |word: &AtomicI64| u64::try_from(word.load(Ordering::Relaxed)).unwrap_or(0);
    figure(layer, device).map_or((0, 0), |figure| (read(&figure.now), read(&figure.peak)))
}

/// The highest levels are those of now.
pub fn reset_peak() {
    keep();
    for figure in FIGURES.iter().flatten() {
        figure
            .peak
            .store(figure.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

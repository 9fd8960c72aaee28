//! What became of the placements that pools follow, for the trace.

use std::sync::Mutex;

use gpushim_alloc::plan::Family;
use gpushim_alloc::stream_pool::Progress;
use gpushim_config::Log;

use crate::base::{settings, stderr};
use crate::memory::registry::{self, RegisteredPool};
use crate::record::trace;

/// Notes in the trace which pools left their plan for the first time, and where; `ends`: how far each followed its
/// plan in all.
pub fn note(ends: bool) {
    static NOTED: Mutex<Vec<(u64, Progress)>> = Mutex::new(Vec::new());
    if settings::config().plan.is_none() {
        return;
    }
    let Ok(mut noted) = NOTED.lock() else { return };
    for entry in registry::all() {
        let Some(progress) = entry.pool.progress() else {
            continue;
        };
        let key = std::ptr::from_ref(entry) as u64;
        let before = noted.iter().find(|(of, _)| *of == key);
        let is_news = match before {
            None => progress.diverged.is_some() || ends,
            Some((_, noted)) => ends && *noted != progress,
        };
        if !is_news {
            continue;
        }
        noted.retain(|(of, _)| *of != key);
        noted.push((key, progress));
        let (name, said) = (name(entry), sentence(&progress));
        trace::fact(&name, &said);
        if settings::config().log >= Log::Info {
            stderr::say(&format!("{name}: {said}"));
        }
    }
}

fn name(entry: &RegisteredPool) -> String {
    let family = match entry.is_of_device() {
        true => Family::Plain,
        false => Family::Streams,
    };
    format!("plan.{}.{}", entry.device, family.name())
}

fn sentence(progress: &Progress) -> String {
    let followed = match progress.returned {
        0 => format!("followed for {} allocations", progress.followed),
        times => format!(
            "followed for {} allocations in all, with {times} returns to it",
            progress.followed
        ),
    };
    match progress.diverged {
        None => followed,
        Some(divergence) if divergence.expected == 0 => format!("{followed}, to its end"),
        Some(divergence) if divergence.expected == divergence.asked => {
            format!(
                "{followed}, then the place for {} bytes was not free",
                divergence.asked
            )
        }
        Some(divergence) => format!(
            "{followed}, then {} bytes were requested instead of {}",
            divergence.asked, divergence.expected
        ),
    }
}

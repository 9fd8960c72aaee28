//! What became of the placements that pools follow, for the trace.

use std::sync::Mutex;

use gpushim_alloc::plan::Family;
use gpushim_alloc::stream_pool::Progress;
use gpushim_config::Log;

use crate::base::{settings, stderr};
use crate::memory::registry::{self, RegisteredPool};
use crate::record::trace;

/// Notes in the trace which pools left their plan, and where; `ends`: also which followed theirs to the end.
pub fn note(ends: bool) {
    static NOTED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    if settings::config().plan.is_none() {
        return;
    }
    let Ok(mut noted) = NOTED.lock() else { return };
    for entry in registry::all() {
        let Some(progress) = entry.pool.progress() else {
            continue;
        };
        let key = std::ptr::from_ref(entry) as u64;
        if noted.contains(&key) || (progress.diverged.is_none() && !ends) {
            continue;
        }
        noted.push(key);
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
    let followed = format!("followed for {} allocations", progress.followed);
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

//! Statistics of the pools of this process, for programs that watch them: `scripts/soak`.

use crate::hooks::entry;
use crate::memory::registry;

/// Writes the first `room` figures of all pools to `out`, and returns the number of figures.
///
/// The figures are, in this order:
///
/// * live blocks;
/// * bytes handed out;
/// * bytes cached;
/// * bytes held from the driver;
/// * bytes that graphs may still use;
/// * pools;
/// * their stream queues.
///
/// # Safety
/// `out` is null or has room for `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpushim_stats(out: *mut u64, room: usize) -> usize {
    entry::serve(
        || 0,
        || {
            let figures = figures();
            let wanted = if out.is_null() { 0 } else { room };
            for (at, figure) in figures.iter().enumerate().take(wanted) {
                // SAFETY: not null, and there is room.
                unsafe { out.add(at).write(*figure) };
            }
            figures.len()
        },
    )
}

fn figures() -> [u64; 7] {
    let mut figures = [0; 7];
    for entry in registry::all() {
        let stats = entry.pool.stats();
        figures[0] += stats.live;
        figures[1] += stats.allocated;
        figures[2] += stats.reserved.saturating_sub(stats.allocated);
        figures[3] += stats.reserved;
        figures[4] += stats.quarantined;
        figures[5] += 1;
        figures[6] += entry.pool.stream_queues() as u64;
    }
    figures
}

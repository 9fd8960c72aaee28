//! Requests that found no memory while other threads were giving memory back, or while other processes have some that they do
//! not use.
//!
//! Memory that is being given back counts neither as the pool's nor as the driver's: a request that comes just then
//! finds none and would fail although there is memory. So a failed request is tried again, one thread at a time, after
//! the other threads' calls are over. It is not tried again if no other thread was giving memory back or asking, unless
//! another process gives memory back when it is asked to (`peer_processes.rs`).

use std::sync::Mutex;

use gpushim_trace::Class;

use crate::cuda::types::{CUresult, OUT_OF_MEMORY};
use crate::memory::activity::Active;
use crate::memory::{budget, memory_info, peer_processes, room};
use crate::record::events;

/// Held by the thread that tries again.
static TURN: Mutex<()> = Mutex::new(());

/// How often a request is tried again while others come and go.
const TIMES: u32 = 3;

/// Calls `ask` for this many bytes of a device; calls it again if other threads were moving memory meanwhile, or if other
/// processes give memory back to the device. Nothing of it is counted against the limit yet.
///
/// # Errors
/// Those of `ask`.
pub fn ask<T>(
    device: i32,
    bytes: u64,
    mut ask: impl FnMut() -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    match ask_in_turn(&mut ask) {
        Err(OUT_OF_MEMORY) if budget::fits(device, bytes) => ask_beside_peers(device, bytes, ask),
        result => result,
    }
}

/// Calls `ask` for this many bytes of a device that has refused them, if other processes give memory back to it.
///
/// # Errors
/// Those of `ask`; out of memory.
pub fn ask_beside_peers<T>(
    device: i32,
    bytes: u64,
    ask: impl FnMut() -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    match peer_processes::make_room(device, bytes) {
        true => ask_in_turn(ask),
        false => Err(OUT_OF_MEMORY),
    }
}

/// Calls `ask`; calls it again if other threads were moving memory meanwhile.
///
/// # Errors
/// Those of `ask`.
pub fn ask_in_turn<T>(mut ask: impl FnMut() -> Result<T, CUresult>) -> Result<T, CUresult> {
    let active = Active::begin();
    let mut result = ask();
    if !matches!(result, Err(OUT_OF_MEMORY)) || active.was_alone() {
        return result;
    }
    let _turn = TURN.lock();
    for _ in 0..TIMES {
        let before = Active::begun();
        room::make_room_patiently();
        result = ask();
        let is_quiet = Active::begun() == before;
        if !matches!(result, Err(OUT_OF_MEMORY)) || is_quiet {
            break;
        }
    }
    result
}

/// Records a request that could not be met.
pub fn refused(class: Class, bytes: u64, error: CUresult) {
    let figures = memory_info::of_device();
    events::out_of_memory(class, bytes, error, figures, memory_info::of_caches);
}

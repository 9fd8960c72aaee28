//! Requests that found no memory while other threads were giving memory back, or while other
//! processes have unused memory.
//!
//! Memory that is being given back counts neither as the pool's nor as the driver's. A request at
//! that moment finds none, and would fail although there is memory. So a failed request is tried
//! again, one thread at a time, after the other threads' calls.
//!
//! It is tried again in two cases only:
//!
//! * Another thread was giving memory back or asking for it.
//! * Another process gives memory back when it is asked to (`peer_processes.rs`).

use std::sync::Mutex;

use gpushim_trace::Class;

use crate::cuda::context;
use crate::cuda::types::{CUresult, OUT_OF_MEMORY};
use crate::memory::activity::Active;
use crate::memory::ledger::Part;
use crate::memory::{limit, make_room, memory_info, peer_processes};
use crate::record::events;

/// Lock held by the thread that tries again.
static TURN: Mutex<()> = Mutex::new(());

/// Most times that a request is tried again while other threads begin and end theirs.
const TIMES: u32 = 3;

/// Calls `ask` for this many bytes of a device. Calls it again if other threads were moving memory
/// meanwhile, or if other processes give memory back to the device. The request must not be counted
/// against the limit yet.
///
/// # Errors
/// The error of `ask`.
pub fn ask<T>(
    device: i32,
    bytes: u64,
    mut ask: impl FnMut() -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    match ask_in_turn(&mut ask) {
        Err(OUT_OF_MEMORY) => ask_beside_peers(device, bytes, ask),
        result => result,
    }
}

/// Calls `ask` for this many bytes of a device that has refused them, if other processes give
/// memory back to it.
///
/// # Errors
/// The error of `ask`; out of memory.
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
/// The error of `ask`.
pub fn ask_in_turn<T>(mut ask: impl FnMut() -> Result<T, CUresult>) -> Result<T, CUresult> {
    let active = Active::begin();
    let mut result = ask();
    if !matches!(result, Err(OUT_OF_MEMORY)) || active.was_alone() {
        return result;
    }
    let _turn = TURN.lock();
    for _ in 0..TIMES {
        let before = Active::begun();
        make_room::make_room_patiently();
        result = ask();
        let is_quiet = Active::begun() == before;
        if !matches!(result, Err(OUT_OF_MEMORY)) || is_quiet {
            break;
        }
    }
    result
}

/// Records a request that failed.
pub fn refused(class: Class, bytes: u64, error: CUresult) {
    let device = context::device().into();
    if error == OUT_OF_MEMORY
        && let Some(part) = Part::of(device)
    {
        part.tell_peers(device, limit::rest(device));
    }
    let figures = memory_info::of_device();
    events::out_of_memory(class, bytes, error, figures, memory_info::of_caches);
}

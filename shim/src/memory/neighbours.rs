//! The user's other processes on a device: they are asked for memory that they do not use before a request fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};

use gpushim_ipc::Room;

use crate::cuda::{device, devices};
use crate::memory::{budget, ipc_server};
use crate::record::trace;

/// How long the others have for their answers.
const PATIENCE: Duration = Duration::from_secs(1);
/// Once nobody had any memory, nobody is asked again for so long.
const PAUSE: Duration = Duration::from_millis(100);
/// Free memory of the device below which it may refuse a request of few bytes: the driver needs some of its own.
const MARGIN: u64 = 32 << 20;
/// What others are asked for at least: each request costs a round of all processes.
const LEAST: u64 = 256 << 20;

/// When others were asked in vain, in nanoseconds since [`START`]; 0: never.
static IN_VAIN: AtomicU64 = AtomicU64::new(0);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A device has refused a request of this many bytes. True if others gave memory back to it, so that it is to be asked again.
/// Does nothing if it was the limit that refused.
pub fn make_room(device: i32, bytes: u64) -> bool {
    if !is_short(device, bytes) || asked_in_vain() {
        return false;
    }
    let Some(uuid) = devices::uuid(device) else {
        return false;
    };
    let own = ipc_server::server().map(|server| &server.name);
    let room = Room {
        device: uuid,
        bytes: bytes.saturating_add(MARGIN).max(LEAST),
    };
    let given = gpushim_ipc::make_room(own, &room, PATIENCE);
    if given == 0 {
        IN_VAIN.store(now(), Ordering::Relaxed);
        return false;
    }
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let what = format!("other processes first gave back {given} bytes, which this one needed");
        trace::fact(&format!("device.{device}.neighbours"), &what);
    });
    true
}

/// Whether it is the device that has no memory.
fn is_short(device: i32, bytes: u64) -> bool {
    let free = device::driver().free_bytes(device);
    budget::fits(device, bytes) && free.is_some_and(|free| free < bytes.saturating_add(MARGIN))
}

/// Nanoseconds since the first call, and one.
fn now() -> u64 {
    START.elapsed().as_nanos() as u64 + 1
}

fn asked_in_vain() -> bool {
    let last = IN_VAIN.load(Ordering::Relaxed);
    last > 0 && now().saturating_sub(last) < PAUSE.as_nanos() as u64
}

//! The user's other processes on a device: they are asked for memory that they do not use before a request fails.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gpushim_ipc::{PeerProcesses, Room};

use crate::cuda::{device, devices};
use crate::memory::ipc_server;
use crate::record::trace;

/// How long the others are waited for: on a busy machine they are slow, and a program that gets no memory usually ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// When no process had memory to give, the next question comes ten times as long as the answers took later, within these bounds.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Free memory of the device below which it may refuse a request of few bytes: the driver needs some of its own.
const MARGIN: u64 = 32 << 20;
/// What others are asked for at least; also if it is unknown how much is needed. Each time costs a round of all processes.
const LEAST: u64 = 256 << 20;
/// Within this time after others gave memory they are asked for twice as much: there is more to come.
const SOON: Duration = Duration::from_secs(1);

/// What came of the last time, for each device.
#[derive(Default)]
struct Last {
    /// When others are asked again, and how many bytes they gave then.
    not_before: Option<Instant>,
    gave: Option<(Instant, u64)>,
    /// The trace says that others gave memory.
    is_told: bool,
}

static PEERS: PeerProcesses = PeerProcesses::new();
static LAST: Mutex<BTreeMap<i32, Last>> = Mutex::new(BTreeMap::new());

/// A device has refused a request of this many bytes; 0 if that is unknown. True if others gave memory back to it, so that it is to be
/// asked again.
pub fn make_room(device: i32, bytes: u64) -> bool {
    let needed = needed(bytes);
    // Without a context there the device does not say what is free. A known request comes with a context.
    is_short(device, needed).unwrap_or(bytes == 0) && ask(device, needed)
}

/// Asks others for memory of a device. True if it has more.
fn ask(device: i32, needed: u64) -> bool {
    let Some(room) = room(device, needed) else {
        return false;
    };
    let begun = Instant::now();
    let given = PEERS.make_room(ipc_server::name(), &room, needed, PATIENCE);
    // Who has not answered yet may have given memory nevertheless.
    let has_room = given > 0 || is_short(device, needed) == Some(false);
    note(device, given, (!has_room).then(|| begun.elapsed()));
    has_room
}

/// What others are asked for. `None`: they were asked in vain just now.
fn room(device: i32, needed: u64) -> Option<Room> {
    let mut least = LEAST;
    if let Some(last) = LAST.lock().ok()?.get(&device) {
        if last.not_before.is_some_and(|then| Instant::now() < then) {
            return None;
        }
        if let Some((_, gave)) = last.gave.filter(|(then, _)| then.elapsed() < SOON) {
            least = least.max(gave.saturating_mul(2));
        }
    }
    Some(Room {
        device: devices::uuid(device)?,
        bytes: needed.max(least),
    })
}

/// Notes what came of it. `vain`: how long the answers took, if there is no more memory than before.
fn note(device: i32, given: u64, vain: Option<Duration>) {
    let Ok(mut all) = LAST.lock() else { return };
    let last = all.entry(device).or_default();
    let now = Instant::now();
    last.not_before = vain.map(|took| now + (10 * took).clamp(PAUSE.0, PAUSE.1));
    last.gave = (given > 0).then_some((now, given));
    if given > 0 && !last.is_told {
        last.is_told = true;
        let what = format!("other processes first gave back {given} bytes, which this one needed");
        trace::fact(&format!("device.{device}.peer_processes"), &what);
    }
}

/// A device with fewer free bytes than this may refuse a request of `bytes`. 0: it is unknown how many are requested.
fn needed(bytes: u64) -> u64 {
    match bytes {
        0 => LEAST,
        _ => bytes.saturating_add(MARGIN),
    }
}

/// Whether a device has less than this free. `None`: it does not say, as this thread has no context there.
fn is_short(device: i32, needed: u64) -> Option<bool> {
    let free = device::driver().free_bytes(device);
    free.map(|free| free < needed)
}

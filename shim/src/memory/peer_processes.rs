//! The user's other processes on a device. Before a request fails, they are asked for memory that
//! they do not use.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gpushim_ipc::{PeerProcesses, Room};

use crate::cuda::{device, devices};
use crate::memory::{ipc_server, ledger, limit};
use crate::record::trace;

/// Longest wait for the other processes: on a busy machine they are slow, and a program without
/// memory usually ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bounds of the pause after a round in which no process had memory to give. The pause is ten times
/// as long as the round.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Free bytes of the device below which it may refuse a small request: the driver needs some
/// itself.
const MARGIN: u64 = 32 << 20;
/// Fewest bytes that others are asked for, also if the need is unknown. Each round asks all
/// processes.
const LEAST: u64 = 256 << 20;
/// Time after a successful round in which others are asked for twice as much: probably more is
/// needed.
const SOON: Duration = Duration::from_secs(1);

/// Result of the last round for a device.
#[derive(Default)]
struct Last {
    /// Time before which others are not asked again.
    not_before: Option<Instant>,
    gave: Option<(Instant, u64)>,
    /// True once the trace says that others gave memory.
    is_told: bool,
}

static PEERS: PeerProcesses = PeerProcesses::new();
static LAST: Mutex<BTreeMap<i32, Last>> = Mutex::new(BTreeMap::new());

/// Asks other processes for memory after a device or the shared limit has refused a request of this
/// many bytes; 0 if the size is unknown. True if others gave memory back, so that the request must
/// be tried again.
pub fn make_room(device: i32, bytes: u64) -> bool {
    if !limit::fits_without_peers(device, bytes) {
        return false;
    }
    let needed = needed(bytes);
    // Without a context there, the free memory of the device is unknown. A request of known size
    // comes with a context.
    if is_short(device, needed).unwrap_or(bytes == 0) {
        return ask(device, needed, None);
    }
    !limit::fits(device, bytes) && ask(device, bytes, ledger::id())
}

/// Asks other processes for memory of a device, or only those with this ledger. True if there is
/// more now.
fn ask(device: i32, needed: u64, ledger: Option<[u8; 16]>) -> bool {
    let Some(room) = room(device, needed, ledger) else {
        return false;
    };
    let begun = Instant::now();
    let given = PEERS.make_room(ipc_server::name(), &room, needed, PATIENCE);
    let is_there = || match ledger {
        Some(_) => limit::fits(device, needed),
        None => is_short(device, needed) == Some(false),
    };
    // A process that has not answered yet may have given memory nevertheless.
    let has_room = given > 0 || is_there();
    note(device, given, (!has_room).then(|| begun.elapsed()));
    has_room
}

/// Returns the request to other processes. `None`: the last round was in vain, and its pause is not
/// over.
fn room(device: i32, needed: u64, ledger: Option<[u8; 16]>) -> Option<Room> {
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
        ledger: ledger.unwrap_or_default(),
    })
}

/// Notes the result of a round. `vain`: time that the answers took, if there is no more memory than
/// before.
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

/// Returns the free bytes below which a device may refuse a request of `bytes`; 0 is a request of
/// unknown size.
fn needed(bytes: u64) -> u64 {
    match bytes {
        0 => LEAST,
        _ => bytes.saturating_add(MARGIN),
    }
}

/// True if a device has fewer free bytes than `needed`. `None`: unknown, as this thread has no
/// context there.
fn is_short(device: i32, needed: u64) -> Option<bool> {
    let free = device::driver().free_bytes(device);
    free.map(|free| free < needed)
}

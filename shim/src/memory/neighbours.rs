//! The user's other processes on a device: they are asked for memory that they do not use before a request fails.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gpushim_ipc::Room;

use crate::cuda::{device, devices};
use crate::memory::ipc_server;
use crate::record::trace;

/// How long the others have for their answers.
const PATIENCE: Duration = Duration::from_secs(1);
/// Once nobody had any memory, nobody is asked again for so long, and for ten times as long as the answers took.
const PAUSE: Duration = Duration::from_millis(100);
/// Free memory of the device below which it may refuse a request of few bytes: the driver needs some of its own.
const MARGIN: u64 = 32 << 20;
/// What others are asked for at least; also if it is unknown how much is needed. Each time costs a round of all processes.
const LEAST: u64 = 256 << 20;
/// Within this time after others gave memory they are asked for twice as much: there is more to come.
const SOON: Duration = Duration::from_secs(1);

/// What came of the last time, for each device.
struct Last {
    /// When others are asked again, and how many bytes they gave then.
    not_before: Option<Instant>,
    gave: Option<(Instant, u64)>,
    /// The trace says that others gave memory.
    is_told: bool,
}

static LAST: Mutex<BTreeMap<i32, Last>> = Mutex::new(BTreeMap::new());

/// A device has refused a request of this many bytes; 0 if that is unknown. True if others gave memory back to it, so that it is to be
/// asked again.
pub fn make_room(device: i32, bytes: u64) -> bool {
    if !is_short(device, bytes) {
        return false;
    }
    let Some(room) = room(device, bytes) else {
        return false;
    };
    let begun = Instant::now();
    let own = ipc_server::server().map(|server| &server.name);
    let given = gpushim_ipc::make_room(own, &room, PATIENCE);
    // Who did not answer in time may have given memory since.
    let has_room = given > 0 || !is_short(device, bytes);
    note(device, given, (!has_room).then(|| begun.elapsed()));
    has_room
}

/// What others are asked for. `None`: they were asked in vain just now.
fn room(device: i32, bytes: u64) -> Option<Room> {
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
        bytes: bytes.saturating_add(MARGIN).max(least),
    })
}

/// Notes what came of it. `vain`: how long the answers took, if there is no more memory than before.
fn note(device: i32, given: u64, vain: Option<Duration>) {
    let Ok(mut all) = LAST.lock() else { return };
    let last = all.entry(device).or_insert(Last {
        not_before: None,
        gave: None,
        is_told: false,
    });
    let now = Instant::now();
    last.not_before = vain.map(|took| now + PAUSE.max(10 * took));
    last.gave = (given > 0).then_some((now, given));
    if given > 0 && !last.is_told {
        last.is_told = true;
        let what = format!("other processes first gave back {given} bytes, which this one needed");
        trace::fact(&format!("device.{device}.neighbours"), &what);
    }
}

/// Whether it is the device that has no memory. Without a context there, it does not say what is free.
fn is_short(device: i32, bytes: u64) -> bool {
    let needed = match bytes {
        0 => LEAST,
        _ => bytes.saturating_add(MARGIN),
    };
    let free = device::driver().free_bytes(device);
    free.map_or(bytes == 0, |free| free < needed)
}

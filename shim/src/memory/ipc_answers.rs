//! This process's answers to others: to importers of its memory, and to processes whose device has
//! no memory left.

use gpushim_ipc::Room;

use crate::cuda::devices;
use crate::memory::activity::Active;
use crate::memory::ipc_server::{self, Answers};
use crate::memory::{ipc_export, ledger, make_room};

/// Starts to answer other processes.
pub fn start() {
    ipc_server::start(Answers {
        pieces: ipc_export::pieces,
        make_room,
    });
}

/// Frees memory for another process that has none. Returns the bytes.
fn make_room(room: &Room) -> u64 {
    let is_elsewhere = room.ledger != [0; 16] && Some(room.ledger) != ledger::id();
    if is_elsewhere {
        return 0;
    }
    let _active = Active::begin();
    let device = devices::with_uuid(room.device);
    device.map_or(0, |device| make_room::for_peer_process(device, room.bytes))
}

//! What this process answers others: importers of its memory, and processes whose device has no memory left.

use gpushim_ipc::Room;

use crate::cuda::devices;
use crate::memory::activity::Active;
use crate::memory::ipc_server::{self, Answers};
use crate::memory::{ipc_export, room};

/// Answers from here on.
pub fn start() {
    ipc_server::start(Answers {
        pieces: ipc_export::pieces,
        make_room,
    });
}

/// Another process has no memory.
fn make_room(room: &Room) -> u64 {
    let _active = Active::begin();
    let device = devices::with_uuid(room.device);
    device.map_or(0, |device| room::for_peer_process(device, room.bytes))
}

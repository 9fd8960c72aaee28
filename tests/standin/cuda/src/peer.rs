//! Access of one device to another's memory.

use std::collections::HashSet;

use crate::abi::Out;
use crate::codes::{
    INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, Outcome, PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED, PEER_ACCESS_UNSUPPORTED,
};
use crate::memory::{Allocation, Kind};
use crate::state::{State, lock};

/// Contexts with access to another context's memory, as (user, owner).
#[derive(Debug, Default)]
pub struct Peers(HashSet<(u64, u64)>);

impl Peers {
    /// True if `user` may use the memory of `owner`.
    pub fn allows(&self, user: u64, owner: u64) -> bool {
        user == owner || self.0.contains(&(user, owner))
    }

    /// Forgets a destroyed context.
    pub fn forget(&mut self, context: u64) {
        self.0
            .retain(|(user, owner)| *user != context && *owner != context);
    }
}

/// Returns the current context and the other one, with their devices.
fn pair(state: &State, owner: u64) -> Outcome<((u64, i32), (u64, i32))> {
    let user = state.current()?;
    let device = |context| {
        state
            .contexts
            .get(context)
            .map(|context| context.device)
            .map_err(|_| INVALID_CONTEXT)
    };
    Ok(((user, device(user)?), (owner, device(owner)?)))
}

/// True if a kernel of a context may access an allocation. Copies need no access.
pub fn may_touch(state: &State, user: u64, base: u64, found: &Allocation, writes: bool) -> bool {
    let device = state
        .contexts
        .get(user)
        .map_or(found.device, |context| context.device);
    let needed = if writes { 3 } else { 1 };
    match found.kind {
        Kind::Device | Kind::Array | Kind::Graph | Kind::Imported => {
            found.device == device || state.peers.allows(user, found.context)
        }
        Kind::Pool => found.device == device || state.mempools.lets_in(base, device),
        Kind::Mapped => state.vmm.mapping(base).is_none_or(|(_, mapping)| {
            let given = mapping
                .access
                .get(&(crate::vmm::DEVICE, device))
                .copied()
                .unwrap_or(0);
            given & needed == needed
        }),
        Kind::Managed | Kind::Host | Kind::Registered => true,
    }
}

fn can_access(device: i32, peer: i32) -> Outcome<i32> {
    let mut state = lock()?;
    state.device(device)?;
    state.device(peer)?;
    Ok(i32::from(device != peer))
}

api! {
    /// Reports if a device can use another's memory: any other device's, but not its own.
    cuDeviceCanAccessPeer 4000 => fn cuDeviceCanAccessPeer(able: Out<i32>, device: i32, peer: i32) {
        able.required()?;
        able.put(can_access(device, peer)?)
    }
    /// Returns one property of the link of two devices: rank, access, atomics or arrays.
    cuDeviceGetP2PAttribute 8000 => fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: u32, device: i32, peer: i32) {
        value.required()?;
        if can_access(device, peer)? == 0 {
            return Err(INVALID_DEVICE);
        }
        match attribute {
            1 => value.put(0),
            2..=4 => value.put(1),
            _ => Err(INVALID_VALUE),
        }
    }
    /// Lets the current context use the memory of another.
    cuCtxEnablePeerAccess 4000 => fn cuCtxEnablePeerAccess(context: u64, flags: u32) {
        let mut state = lock()?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let ((user, device), (owner, peer)) = pair(&state, context)?;
        if device == peer {
            return Err(PEER_ACCESS_UNSUPPORTED);
        }
        match state.peers.0.insert((user, owner)) {
            true => Ok(()),
            false => Err(PEER_ACCESS_ALREADY_ENABLED),
        }
    }
    /// Ends the current context's access to the memory of another.
    cuCtxDisablePeerAccess 4000 => fn cuCtxDisablePeerAccess(context: u64) {
        let mut state = lock()?;
        let ((user, _), (owner, _)) = pair(&state, context)?;
        match state.peers.0.remove(&(user, owner)) {
            true => Ok(()),
            false => Err(PEER_ACCESS_NOT_ENABLED),
        }
    }
}

//! Copies of one dimension.

use crate::api::Via;
use crate::capture;
use crate::codes::Outcome;
use crate::state::{Guard, lock};
use crate::work::{Copy, Place, Work};

/// Performs a copy that is complete when the call returns. Between two places on the device the
/// host does not wait.
pub fn blocking(via: Via, copy: Copy) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, 0)?;
    capture::copy_call(&mut state, key)?;
    let waits = has_host_side(&state, &copy);
    crate::work::submit(&mut state, key, Work::Copy(copy))?;
    if waits {
        finish(&mut state, key)?;
    }
    Ok(())
}

/// Performs a copy in the stream's order. To pageable memory it is complete when the call returns.
pub fn queued(via: Via, stream: u64, copy: Copy) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    let waits = !state.memory.is_known(copy.dst.place, copy.dst.address);
    crate::work::submit(&mut state, key, Work::Copy(copy))?;
    if waits && !capture::is_in_capture(&state, key)? {
        finish(&mut state, key)?;
    }
    Ok(())
}

fn finish(state: &mut Guard, key: u64) -> Outcome {
    let lane = state.streams.get(key)?.lane;
    let target = state.model.target(lane);
    // This is no synchronisation of a stream, an event or a context: pools return no memory.
    state.wait(&target.finish);
    state.model.observe(&target);
    Ok(())
}

fn has_host_side(state: &Guard, copy: &Copy) -> bool {
    use crate::memory::Kind;
    [copy.src, copy.dst].iter().any(|side| {
        let found = state.memory.find(side.address);
        found.is_none_or(|(_, memory)| matches!(memory.kind, Kind::Host | Kind::Registered))
    })
}

const DEVICE: Place = Place::Device;
const HOST: Place = Place::Host;
const EITHER: Place = Place::Either;

api! {
    /// Copies between any two places.
    cuMemcpy 4000 => fn cuMemcpy | cuMemcpy_ptds[via](dst: u64, src: u64, bytes: usize) {
        blocking(via, Copy::line((EITHER, dst), (EITHER, src), bytes))
    }
    /// Copies between any two places, in the stream's order.
    cuMemcpyAsync 4000 => fn cuMemcpyAsync | cuMemcpyAsync_ptsz[via](dst: u64, src: u64, bytes: usize, stream: u64) {
        queued(via, stream, Copy::line((EITHER, dst), (EITHER, src), bytes))
    }
    /// Copies from host to device.
    cuMemcpyHtoD 3020 => fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds[via](dst: u64, src: u64, bytes: usize) {
        blocking(via, Copy::line((DEVICE, dst), (HOST, src), bytes))
    }
    /// Copies from device to host.
    cuMemcpyDtoH 3020 => fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds[via](dst: u64, src: u64, bytes: usize) {
        blocking(via, Copy::line((HOST, dst), (DEVICE, src), bytes))
    }
    /// Copies within the device.
    cuMemcpyDtoD 3020 => fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds[via](dst: u64, src: u64, bytes: usize) {
        blocking(via, Copy::line((DEVICE, dst), (DEVICE, src), bytes))
    }
    /// Copies from host to device, in the stream's order.
    cuMemcpyHtoDAsync 3020 => fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz[via](dst: u64, src: u64, bytes: usize, stream: u64) {
        queued(via, stream, Copy::line((DEVICE, dst), (HOST, src), bytes))
    }
    /// Copies from device to host, in the stream's order.
    cuMemcpyDtoHAsync 3020 => fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz[via](dst: u64, src: u64, bytes: usize, stream: u64) {
        queued(via, stream, Copy::line((HOST, dst), (DEVICE, src), bytes))
    }
    /// Copies within the device, in the stream's order.
    cuMemcpyDtoDAsync 3020 => fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz[via](dst: u64, src: u64, bytes: usize, stream: u64) {
        queued(via, stream, Copy::line((DEVICE, dst), (DEVICE, src), bytes))
    }
    cuMemcpyPeer 4000 => fn cuMemcpyPeer | cuMemcpyPeer_ptds[via](dst: u64, dst_context: u64, src: u64, src_context: u64, bytes: usize) {
        peer(dst_context, src_context)?;
        blocking(via, peers(dst, src, bytes))
    }
    /// Copies between devices, in the stream's order.
    cuMemcpyPeerAsync 4000 => fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz[via](dst: u64, dst_context: u64, src: u64, src_context: u64, bytes: usize, stream: u64) {
        peer(dst_context, src_context)?;
        queued(via, stream, peers(dst, src, bytes))
    }
}

fn peers(dst: u64, src: u64, bytes: usize) -> Copy {
    Copy {
        is_peer: true,
        ..Copy::line((DEVICE, dst), (DEVICE, src), bytes)
    }
}

fn peer(dst_context: u64, src_context: u64) -> Outcome {
    let state = lock()?;
    for context in [dst_context, src_context] {
        if !state.contexts.contains(context) {
            return Err(crate::codes::INVALID_CONTEXT);
        }
    }
    Ok(())
}

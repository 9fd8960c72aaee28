//! Copies of two and three dimensions, arrays included.

use crate::abi::{
    In, MEMORYTYPE_ARRAY, MEMORYTYPE_DEVICE, MEMORYTYPE_HOST, MEMORYTYPE_UNIFIED, Memcpy2D,
    Memcpy3D, Side2D, Side3D,
};
use crate::codes::{INVALID_VALUE, Outcome};
use crate::copy::{blocking, queued};
use crate::state::{State, lock};
use crate::work::{Copy, Place, Side};

fn in_3d(side: Side2D) -> Side3D {
    Side3D {
        x: side.x,
        y: side.y,
        kind: side.kind,
        host: side.host,
        device: side.device,
        array: side.array,
        pitch: side.pitch,
        ..Side3D::default()
    }
}

fn side(state: &State, side: &Side3D, width: usize, height: usize) -> Outcome<Side> {
    let (place, base) = match side.kind {
        MEMORYTYPE_HOST => (Place::Host, side.host),
        MEMORYTYPE_DEVICE => (Place::Device, side.device),
        MEMORYTYPE_UNIFIED => (Place::Either, side.device),
        MEMORYTYPE_ARRAY => {
            let array = state.arrays.get(side.array)?;
            return Ok(Side {
                place: Place::Device,
                address: array.address
                    + side.z as u64 * array.slice
                    + side.y as u64 * array.pitch
                    + side.x as u64,
                pitch: array.pitch,
                slice: array.slice,
            });
        }
        _ => return Err(INVALID_VALUE),
    };
    let pitch = if side.pitch == 0 { width } else { side.pitch };
    let rows = if side.height == 0 {
        height
    } else {
        side.height
    };
    if pitch < width {
        return Err(INVALID_VALUE);
    }
    let (pitch, slice) = (pitch as u64, (pitch * rows) as u64);
    Ok(Side {
        place,
        address: base + side.z as u64 * slice + side.y as u64 * pitch + side.x as u64,
        pitch,
        slice,
    })
}

/// Returns the copy that a descriptor describes.
pub fn resolve(state: &State, copy: &Memcpy3D) -> Outcome<Copy> {
    Ok(Copy {
        src: side(state, &copy.src, copy.width, copy.height)?,
        dst: side(state, &copy.dst, copy.width, copy.height)?,
        width: copy.width as u64,
        height: copy.height as u64,
        depth: copy.depth as u64,
        is_peer: false,
    })
}

fn in_space(copy: In<Memcpy3D>) -> Outcome<Copy> {
    resolve(&*lock()?, &copy.get()?)
}

fn in_plane(copy: In<Memcpy2D>) -> Outcome<Copy> {
    let copy = copy.get()?;
    let copy = Memcpy3D {
        src: in_3d(copy.src),
        dst: in_3d(copy.dst),
        width: copy.width,
        height: copy.height,
        depth: 1,
    };
    resolve(&*lock()?, &copy)
}

fn array_copy(
    array: u64,
    offset: usize,
    place: Place,
    address: u64,
    bytes: usize,
    to_array: bool,
) -> Outcome<Copy> {
    let at = lock()?.arrays.get(array)?.address + offset as u64;
    let (array, other) = ((Place::Device, at), (place, address));
    Ok(match to_array {
        true => Copy::line(array, other, bytes),
        false => Copy::line(other, array, bytes),
    })
}

api! {
    /// Copies rows of linear memory or arrays.
    cuMemcpy2D 3020 => fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds[via](copy: In<Memcpy2D>) {
        blocking(via, in_plane(copy)?)
    }
    /// Copies rows of any alignment.
    cuMemcpy2DUnaligned 3020 => fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds[via](copy: In<Memcpy2D>) {
        blocking(via, in_plane(copy)?)
    }
    /// Copies rows, in the stream's order.
    cuMemcpy2DAsync 3020 => fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz[via](copy: In<Memcpy2D>, stream: u64) {
        queued(via, stream, in_plane(copy)?)
    }
    /// Copies a box of linear memory or arrays.
    cuMemcpy3D 3020 => fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds[via](copy: In<Memcpy3D>) {
        blocking(via, in_space(copy)?)
    }
    /// Copies a box, in the stream's order.
    cuMemcpy3DAsync 3020 => fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz[via](copy: In<Memcpy3D>, stream: u64) {
        queued(via, stream, in_space(copy)?)
    }
    /// Copies a box between devices.
    cuMemcpy3DPeer 4000 => fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds[via](copy: In<Memcpy3D>) {
        blocking(via, Copy { is_peer: true, ..in_space(copy)? })
    }
    /// Copies a box between devices, in the stream's order.
    cuMemcpy3DPeerAsync 4000 => fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz[via](copy: In<Memcpy3D>, stream: u64) {
        queued(via, stream, Copy { is_peer: true, ..in_space(copy)? })
    }
    /// Copies from host to array.
    cuMemcpyHtoA 3020 => fn cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds[via](dst: u64, offset: usize, src: u64, bytes: usize) {
        blocking(via, array_copy(dst, offset, Place::Host, src, bytes, true)?)
    }
    /// Copies from array to host.
    cuMemcpyAtoH 3020 => fn cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds[via](dst: u64, src: u64, offset: usize, bytes: usize) {
        blocking(via, array_copy(src, offset, Place::Host, dst, bytes, false)?)
    }
    /// Copies from device memory to array.
    cuMemcpyDtoA 3020 => fn cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds[via](dst: u64, offset: usize, src: u64, bytes: usize) {
        blocking(via, array_copy(dst, offset, Place::Device, src, bytes, true)?)
    }
    /// Copies from array to device memory.
    cuMemcpyAtoD 3020 => fn cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds[via](dst: u64, src: u64, offset: usize, bytes: usize) {
        blocking(via, array_copy(src, offset, Place::Device, dst, bytes, false)?)
    }
    /// Copies from array to array.
    cuMemcpyAtoA 3020 => fn cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds[via](dst: u64, dst_offset: usize, src: u64, src_offset: usize, bytes: usize) {
        let from = lock()?.arrays.get(src)?.address + src_offset as u64;
        blocking(via, array_copy(dst, dst_offset, Place::Device, from, bytes, true)?)
    }
    /// Copies from host to array, in the stream's order.
    cuMemcpyHtoAAsync 3020 => fn cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz[via](dst: u64, offset: usize, src: u64, bytes: usize, stream: u64) {
        queued(via, stream, array_copy(dst, offset, Place::Host, src, bytes, true)?)
    }
    /// Copies from array to host, in the stream's order.
    cuMemcpyAtoHAsync 3020 => fn cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz[via](dst: u64, src: u64, offset: usize, bytes: usize, stream: u64) {
        queued(via, stream, array_copy(src, offset, Place::Host, dst, bytes, false)?)
    }
}

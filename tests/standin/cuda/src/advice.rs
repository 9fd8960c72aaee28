//! Advice about managed memory: accepted without effect. A prefetch adds an empty item to its
//! stream.

use crate::abi::{In, MemLocation, Out};
use crate::api::Via;
use crate::codes::{INVALID_VALUE, Outcome};
use crate::memory::Kind;
use crate::state::{Guard, lock};
use crate::work::Work;

fn is_managed(state: &Guard, address: u64, bytes: usize) -> Outcome {
    let found = state
        .memory
        .find(address)
        .filter(|(_, found)| found.kind == Kind::Managed);
    let (base, found) = found.ok_or(INVALID_VALUE)?;
    match bytes > 0 && address + bytes as u64 <= base + found.size {
        true => Ok(()),
        false => Err(INVALID_VALUE),
    }
}

fn advise(address: u64, bytes: usize) -> Outcome {
    is_managed(&lock()?, address, bytes)
}

fn prefetch(via: Via, address: u64, bytes: usize, stream: u64) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    is_managed(&state, address, bytes)?;
    crate::work::submit(&mut state, key, Work::Empty)
}

/// Numbers of the attributes of a range (`CUmem_range_attribute`).
const RANGE_ATTRIBUTES: std::ops::RangeInclusive<u32> = 1..=8;

/// Writes an attribute of a range as zeros: no advice is kept here.
fn attribute(data: Out<u8>, bytes: usize, number: u32) -> Outcome {
    data.required()?;
    if !RANGE_ATTRIBUTES.contains(&number) || bytes == 0 || !bytes.is_multiple_of(4) {
        return Err(INVALID_VALUE);
    }
    (0..bytes).for_each(|index| data.put_at(index, 0));
    Ok(())
}

api! {
    /// Reports the advice for memory.
    cuMemRangeGetAttribute 8000 => fn cuMemRangeGetAttribute(data: Out<u8>, room: usize, number: u32, address: u64, bytes: usize) {
        is_managed(&lock()?, address, bytes)?;
        attribute(data, room, number)
    }
    /// Reports the advice for memory, several attributes at a time.
    cuMemRangeGetAttributes 8000 => fn cuMemRangeGetAttributes(data: In<Out<u8>>, rooms: In<usize>, numbers: In<u32>, count: usize, address: u64, bytes: usize) {
        is_managed(&lock()?, address, bytes)?;
        (0..count).try_for_each(|index| attribute(data.at(index)?, rooms.at(index)?, numbers.at(index)?))
    }
    /// Accepts advice on the use of managed memory.
    cuMemAdvise 8000 => fn cuMemAdvise(address: u64, bytes: usize, _advice: u32, _device: i32) {
        advise(address, bytes)
    }
    /// Accepts advice on the use of managed memory.
    cuMemAdvise 12020 => fn cuMemAdvise_v2(address: u64, bytes: usize, _advice: u32, _location: MemLocation) {
        advise(address, bytes)
    }
    /// Accepts a prefetch of managed memory to a device.
    cuMemPrefetchAsync 8000 => fn cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz[via](address: u64, bytes: usize, _device: i32, stream: u64) {
        prefetch(via, address, bytes, stream)
    }
    /// Accepts a prefetch of managed memory to a location.
    cuMemPrefetchAsync 12020 => fn cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz[via](address: u64, bytes: usize, _location: MemLocation, _flags: u32, stream: u64) {
        prefetch(via, address, bytes, stream)
    }
}

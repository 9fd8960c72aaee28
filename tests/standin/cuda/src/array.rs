//! Arrays and mipmapped arrays, as rows in real memory.

use crate::abi::{Array3DDescriptor, ArrayDescriptor, In, Out};
use crate::capture;
use crate::codes::{INVALID_HANDLE, INVALID_VALUE, Outcome};
use crate::memory::Kind;
use crate::state::{State, lock};

#[derive(Clone)]
pub struct Array {
    /// Descriptor that the array was made from.
    pub descriptor: Array3DDescriptor,
    /// Address of its first byte.
    pub address: u64,
    /// Distance from row to row, in bytes.
    pub pitch: u64,
    /// Distance from slice to slice, in bytes.
    pub slice: u64,
    /// Handle of the context that owns it.
    pub context: u64,
    /// Handles of its levels, if it is mipmapped.
    pub levels: Vec<u64>,
    /// True for a level of a mipmapped array. It is destroyed with the mipmapped array.
    pub is_level: bool,
}

/// Limit of each side of an array, in elements: an H100's for one and two dimensions.
const LONGEST: usize = 131_072;

/// Returns the bytes of one channel, by `CUarray_format`.
fn channel_bytes(format: u32) -> Outcome<u64> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(INVALID_VALUE),
    }
}

/// Returns pitch, slice and whole size, in bytes.
fn layout(descriptor: &Array3DDescriptor) -> Outcome<(u64, u64, u64)> {
    let longest = descriptor
        .width
        .max(descriptor.height)
        .max(descriptor.depth);
    if descriptor.width == 0 || longest > LONGEST || !matches!(descriptor.channels, 1 | 2 | 4) {
        return Err(INVALID_VALUE);
    }
    let element = channel_bytes(descriptor.format)? * u64::from(descriptor.channels);
    let pitch = (descriptor.width as u64)
        .checked_mul(element)
        .ok_or(INVALID_VALUE)?;
    let slice = pitch
        .checked_mul(descriptor.height.max(1) as u64)
        .ok_or(INVALID_VALUE)?;
    let bytes = slice
        .checked_mul(descriptor.depth.max(1) as u64)
        .ok_or(INVALID_VALUE)?;
    Ok((pitch, slice, bytes))
}

fn create(descriptor: Array3DDescriptor, levels: u32) -> Outcome<u64> {
    let mut state = lock()?;
    let context = state.current()?;
    capture::unsafe_call(&mut state)?;
    let (pitch, slice, bytes) = layout(&descriptor)?;
    let mut parts = Vec::new();
    let mut total = 0;
    for level in 0..levels {
        let smaller = |length: usize| {
            if length == 0 {
                0
            } else {
                (length >> level).max(1)
            }
        };
        let part = Array3DDescriptor {
            width: smaller(descriptor.width),
            height: smaller(descriptor.height),
            depth: smaller(descriptor.depth),
            ..descriptor
        };
        let (pitch, slice, bytes) = layout(&part)?;
        parts.push((part, pitch, slice, total));
        total += bytes;
    }
    let address = state.allocate(context, total.max(bytes), Kind::Array, descriptor.flags)?;
    let whole = Array {
        descriptor,
        address,
        pitch,
        slice,
        context,
        levels: Vec::new(),
        is_level: false,
    };
    let levels = parts
        .into_iter()
        .map(|(descriptor, pitch, slice, offset)| {
            state.arrays.insert(Array {
                descriptor,
                address: address + offset,
                pitch,
                slice,
                is_level: true,
                ..whole.clone()
            })
        })
        .collect();
    Ok(state.arrays.insert(Array { levels, ..whole }))
}

fn destroy(handle: u64, is_mipmapped: bool) -> Outcome {
    let mut state = lock()?;
    state.current()?;
    capture::unsafe_call(&mut state)?;
    let array = state.arrays.get(handle)?;
    if array.is_level || array.levels.is_empty() == is_mipmapped {
        return Err(INVALID_HANDLE);
    }
    let (context, address) = (array.context, array.address);
    state.synchronize_context(context);
    let array = state.arrays.remove(handle)?;
    for level in array.levels {
        state.arrays.remove(level)?;
    }
    state.release(address)
}

/// Forgets the arrays of a context that is destroyed.
pub fn context_gone(state: &mut State, context: u64) {
    state.arrays.retain(|_, array| array.context != context);
}

api! {
    /// Makes an array of one or two dimensions.
    cuArrayCreate 3020 => fn cuArrayCreate_v2(array: Out<u64>, descriptor: In<ArrayDescriptor>) {
        array.required()?;
        let flat = descriptor.get()?;
        array.put(create(Array3DDescriptor {
            width: flat.width,
            height: flat.height,
            depth: 0,
            format: flat.format,
            channels: flat.channels,
            flags: 0,
        }, 0)?)
    }
    /// Makes an array of up to three dimensions.
    cuArray3DCreate 3020 => fn cuArray3DCreate_v2(array: Out<u64>, descriptor: In<Array3DDescriptor>) {
        array.required()?;
        array.put(create(descriptor.get()?, 0)?)
    }
    /// Destroys an array and frees its memory.
    cuArrayDestroy 2000 => fn cuArrayDestroy(array: u64) {
        destroy(array, false)
    }
    /// Reports width, height, format and channels of an array.
    cuArrayGetDescriptor 3020 => fn cuArrayGetDescriptor_v2(descriptor: Out<ArrayDescriptor>, array: u64) {
        let state = lock()?;
        let from = state.arrays.get(array)?.descriptor;
        descriptor.put(ArrayDescriptor {
            width: from.width,
            height: from.height,
            format: from.format,
            channels: from.channels,
        })
    }
    /// Reports the descriptor that an array was made from.
    cuArray3DGetDescriptor 3020 => fn cuArray3DGetDescriptor_v2(descriptor: Out<Array3DDescriptor>, array: u64) {
        descriptor.put(lock()?.arrays.get(array)?.descriptor)
    }
    /// Makes a mipmapped array, whose levels halve in size.
    cuMipmappedArrayCreate 5000 => fn cuMipmappedArrayCreate(array: Out<u64>, descriptor: In<Array3DDescriptor>, levels: u32) {
        array.required()?;
        // A request for 0 levels makes one level.
        array.put(create(descriptor.get()?, levels.clamp(1, 32))?)
    }
    /// Returns the array of one level.
    cuMipmappedArrayGetLevel 5000 => fn cuMipmappedArrayGetLevel(level: Out<u64>, array: u64, index: u32) {
        let state = lock()?;
        let levels = &state.arrays.get(array)?.levels;
        level.put(*levels.get(index as usize).ok_or(INVALID_VALUE)?)
    }
    /// Destroys a mipmapped array with its levels.
    cuMipmappedArrayDestroy 5000 => fn cuMipmappedArrayDestroy(array: u64) {
        destroy(array, true)
    }
}

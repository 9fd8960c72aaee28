//! Members of `cudaDeviceProp` that programs commonly read, at the offsets of CUDA 12 and of CUDA
//! 13.

use std::ffi::{c_int, c_void};
use std::ptr::write_bytes;

use crate::context;
use crate::driver::{Code, Door, Driver, INVALID_VALUE, SUCCESS};
use crate::version::version;

/// Sizes of the structure in bytes, from the headers of CUDA 12.9 and 13.
const SIZE_12: usize = 1032;
const SIZE_13: usize = 1008;

/// Offsets that both layouts share.
const UUID: usize = 256;
const TOTAL_GLOBAL_MEMORY: usize = 288;

/// Member of type `int` or `size_t`: its device attribute and its offsets in the two layouts.
struct Member {
    attribute: c_int,
    in_12: usize,
    in_13: usize,
    /// True for a `size_t` in the structure, false for an `int`.
    wide: bool,
}

const fn int(attribute: c_int, in_12: usize, in_13: usize) -> Member {
    Member {
        attribute,
        in_12,
        in_13,
        wide: false,
    }
}

const fn wide(attribute: c_int, in_12: usize, in_13: usize) -> Member {
    Member {
        attribute,
        in_12,
        in_13,
        wide: true,
    }
}

/// Members in their order in the structure. Attribute numbers are those of `CUdevice_attribute`.
const MEMBERS: &[Member] = &[
    wide(8, 296, 296),  // sharedMemPerBlock
    int(12, 304, 304),  // regsPerBlock
    int(10, 308, 308),  // warpSize
    wide(11, 312, 312), // memPitch
    int(1, 320, 320),   // maxThreadsPerBlock
    int(2, 324, 324),   // maxThreadsDim x, y, z
    int(3, 328, 328),
    int(4, 332, 332),
    int(5, 336, 336), // maxGridSize x, y, z
    int(6, 340, 340),
    int(7, 344, 344),
    wide(9, 352, 352),  // totalConstMem
    int(75, 360, 360),  // major
    int(76, 364, 364),  // minor
    wide(14, 368, 368), // textureAlignment
    int(16, 388, 384),  // multiProcessorCount
    int(19, 400, 392),  // canMapHostMemory
    int(31, 576, 560),  // concurrentKernels
    int(33, 584, 568),  // pciBusID
    int(34, 588, 572),  // pciDeviceID
    int(50, 592, 576),  // pciDomainID
    int(40, 600, 584),  // asyncEngineCount
    int(41, 604, 588),  // unifiedAddressing
    int(37, 612, 592),  // memoryBusWidth
    int(38, 616, 596),  // l2CacheSize
    int(39, 624, 604),  // maxThreadsPerMultiProcessor
    int(78, 628, 608),  // streamPrioritiesSupported
    wide(81, 640, 624), // sharedMemPerMultiprocessor
    int(82, 648, 632),  // regsPerMultiprocessor
    int(83, 652, 636),  // managedMemory
    int(89, 676, 656),  // concurrentManagedAccess
    int(95, 688, 668),  // cooperativeLaunch
    wide(97, 696, 672), // sharedMemPerBlockOptin
    int(106, 712, 688), // maxBlocksPerMultiProcessor
    int(99, 728, 704),  // hostRegisterSupported
    int(115, 744, 720), // memoryPoolsSupported
];

/// Writes the members that lie below `size`.
///
/// # Safety
/// `properties` is valid for writes of `size` bytes. The caller has zeroed it, if other members
/// must be zero.
unsafe fn fill(
    driver: &Driver,
    properties: *mut c_void,
    device: c_int,
    size: usize,
    modern: bool,
) -> Code {
    let base = properties.cast::<u8>();
    // SAFETY: name and uuid lie within the first 272 bytes of every layout.
    let code = unsafe {
        match driver.cuDeviceGetName(base.cast(), UUID as c_int, device) {
            SUCCESS => driver.cuDeviceGetUuid(base.add(UUID).cast(), device),
            code => code,
        }
    };
    if code != SUCCESS {
        return code;
    }
    let mut total = 0usize;
    // SAFETY: the result is a local of this function.
    let code = unsafe { driver.cuDeviceTotalMem(&mut total, device) };
    if code != SUCCESS {
        return code;
    }
    // SAFETY: this offset is within every layout, and aligned for a size_t.
    unsafe { base.add(TOTAL_GLOBAL_MEMORY).cast::<usize>().write(total) };
    for member in MEMBERS {
        let offset = if modern { member.in_13 } else { member.in_12 };
        if offset + 8 > size {
            continue;
        }
        let mut value = 0;
        // SAFETY: the result is a local of this loop. An attribute that the driver does not know
        // leaves it 0.
        unsafe { driver.cuDeviceGetAttribute(&mut value, member.attribute, device) };
        // SAFETY: the offset is that of a member of this layout, below `size` and so aligned.
        unsafe {
            match member.wide {
                true => base.add(offset).cast::<usize>().write(value as usize),
                false => base.add(offset).cast::<c_int>().write(value),
            }
        }
    }
    SUCCESS
}

/// Writes the properties in the layout of CUDA 13, or of CUDA 11 in earlier runtimes. For CUDA 11,
/// only members at the same place as in CUDA 12 are written.
///
/// # Safety
/// `properties` is valid for writes of the caller's `cudaDeviceProp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDeviceProperties(properties: *mut c_void, device: c_int) -> Code {
    crate::error::finish(context::without(Door::Legacy, |driver| {
        if properties.is_null() {
            return INVALID_VALUE;
        }
        let modern = version() >= 13000;
        // Up to cooperativeLaunch the layout of CUDA 11 is that of CUDA 12; the rest differs.
        let size = if modern { SIZE_13 } else { 692 };
        // SAFETY: the caller's structure is at least that large.
        unsafe {
            write_bytes(properties.cast::<u8>(), 0, size);
            fill(driver, properties, device, size, modern)
        }
    }))
}

/// Writes the properties in the layout of CUDA 12.
///
/// # Safety
/// `properties` is valid for writes of the caller's `cudaDeviceProp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDeviceProperties_v2(properties: *mut c_void, device: c_int) -> Code {
    crate::error::finish(context::without(Door::Legacy, |driver| {
        if properties.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: the caller's structure has this size.
        unsafe {
            write_bytes(properties.cast::<u8>(), 0, SIZE_12);
            fill(driver, properties, device, SIZE_12, false)
        }
    }))
}

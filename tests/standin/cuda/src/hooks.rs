//! Functions that the stand-in exports beyond the driver API, for tests.

use crate::abi::{In, Out};
use crate::api::{Via, call};
use crate::codes::CUresult;
use crate::model::Touch;
use crate::state::lock;
use crate::work::Work;

/// Bytes that a modelled kernel touches.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StandinRange {
    pub address: u64,
    /// Number of bytes in the range.
    pub bytes: u64,
    /// Not 0 if the kernel writes them.
    pub writes: u32,
}

/// Launches a kernel that takes `duration` nanoseconds and touches `count` ranges.
#[unsafe(no_mangle)]
pub extern "C" fn standin_launch(
    stream: u64,
    duration: u64,
    count: u32,
    ranges: In<StandinRange>,
) -> CUresult {
    call("standin_launch", || {
        let touch = |range: StandinRange| Touch {
            writes: range.writes != 0,
            ..Touch::read(range.address, range.bytes)
        };
        let touches = ranges
            .list(count as usize)?
            .into_iter()
            .map(touch)
            .collect();
        let mut state = lock()?;
        let key = state.stream(Via::Legacy, stream)?;
        crate::work::submit(&mut state, key, Work::Kernel { touches, duration })
    })
}

/// Returns the number of findings of the oracle so far.
#[unsafe(no_mangle)]
pub extern "C" fn standin_findings() -> u64 {
    crate::report::count()
}

/// Forgets all accesses so far to the memory at these addresses. They cause no later finding.
#[unsafe(no_mangle)]
pub extern "C" fn standin_forgive(address: u64, bytes: u64) -> CUresult {
    call("standin_forgive", || {
        let bytes = address..address.saturating_add(bytes);
        lock()?.model.forgive(bytes);
        Ok(())
    })
}

/// Returns the highest use of a device's memory since the last call, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn standin_peak(device: i32, bytes: Out<u64>) -> CUresult {
    call("standin_peak", || {
        let mut state = lock()?;
        let device = state.device(device)?;
        bytes.put(std::mem::replace(&mut device.peak, device.used))
    })
}

/// Moves the driver's clock forward by `nanos` nanoseconds. Work completes that much earlier.
#[unsafe(no_mangle)]
pub extern "C" fn standin_advance(nanos: u64) -> CUresult {
    call("standin_advance", || {
        crate::state::advance(nanos);
        Ok(())
    })
}

/// Restarts the count of calls, for the faults of `STANDIN_FAULT` that count from the mark.
#[unsafe(no_mangle)]
pub extern "C" fn standin_mark() {
    crate::fault::mark();
}

/// Returns the number of calls that a fault of `STANDIN_FAULT` has hit: in the calling thread, or
/// in all threads.
#[unsafe(no_mangle)]
pub extern "C" fn standin_hits(everywhere: i32) -> u64 {
    let (all, here) = crate::fault::hits();
    if everywhere != 0 { all } else { here }
}

/// Writes a line for each driver function called so far, with the number of calls, to a descriptor.
/// Calls are counted if `STANDIN_COUNT` is set.
#[unsafe(no_mangle)]
pub extern "C" fn standin_calls(descriptor: i32) {
    let text = crate::fault::calls();
    // SAFETY: the text is as long as it says. A short write leaves a short list, which a reader
    // notices.
    unsafe { libc::write(descriptor, text.as_ptr().cast(), text.len()) };
}

/// Reports if an address lies in the stand-in's address space: device memory, or space reserved for
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn standin_owns(address: u64) -> i32 {
    lock().is_ok_and(|state| state.memory.owns(address)).into()
}

//! The driver's answers about devices, asked once if they are needed often.

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::SUCCESS;

/// The driver's `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const VIRTUAL_MEMORY: c_int = 102;
/// The driver's `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
const RDMA: c_int = 110;
/// The driver's `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
const DESCRIPTORS: c_int = 103;

fn attribute(device: i32, attribute: c_int) -> bool {
    let mut value = 0;
    // SAFETY: `value` is ours to write.
    let asked =
        thread::call(|| unsafe { real::cuDeviceGetAttribute(&mut value, attribute, device) });
    asked == SUCCESS && value != 0
}

/// True if a device has virtual memory management.
pub fn has_virtual_memory(device: i32) -> bool {
    static KNOWN: Known = Known::new();
    KNOWN.get(device, || attribute(device, VIRTUAL_MEMORY))
}

/// True if a device's virtual memory can have descriptors, by which other processes map it.
pub fn has_descriptors(device: i32) -> bool {
    static KNOWN: Known = Known::new();
    KNOWN.get(device, || attribute(device, DESCRIPTORS))
}

/// Returns an identity of a device that is the same in other processes, which may number their
/// devices differently.
pub fn uuid(device: i32) -> Option<[u8; 16]> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` is ours to write.
    let asked = thread::call(|| unsafe { real::cuDeviceGetUuid_v2(&mut uuid, device) });
    (asked == SUCCESS).then(|| uuid.bytes.map(|byte| byte as u8))
}

/// Returns the device with this [`uuid`]. `None`: this process does not see it.
pub fn with_uuid(wanted: [u8; 16]) -> Option<i32> {
    let mut count = 0;
    // SAFETY: `count` is ours to write.
    let asked = thread::call(|| unsafe { real::cuDeviceGetCount(&mut count) });
    let mut devices = 0..if asked == SUCCESS { count } else { 0 };
    devices.find(|device| uuid(*device) == Some(wanted))
}

/// True if network cards can reach a device's virtual memory.
pub fn is_rdma_capable(device: i32) -> bool {
    static KNOWN: Mutex<Vec<(i32, bool)>> = Mutex::new(Vec::new());
    let Ok(mut known) = KNOWN.lock() else {
        return false;
    };
    if let Some((_, capable)) = known.iter().find(|(of, _)| *of == device) {
        return *capable;
    }
    let capable = attribute(device, RDMA);
    known.push((device, capable));
    capable
}

/// Answers of devices that were asked once.
struct Known(AtomicU64);

impl Known {
    const fn new() -> Self {
        Known(AtomicU64::new(0))
    }

    /// Returns a device's answer. Two bits for each of the first 32 devices: known, and yes.
    fn get(&self, device: i32, ask: impl FnOnce() -> bool) -> bool {
        let Some(shift) = u32::try_from(device).ok().filter(|device| *device < 32) else {
            return ask();
        };
        match self.0.load(Ordering::Relaxed) >> (2 * shift) & 3 {
            0 => {
                let answer = ask();
                self.0.fetch_or(
                    (1 | u64::from(answer) << 1) << (2 * shift),
                    Ordering::Relaxed,
                );
                answer
            }
            known => known == 3,
        }
    }
}

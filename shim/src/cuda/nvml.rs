//! NVML, for a figure that the driver's API does not have: the bytes of a device that this process
//! uses, with its contexts and code. Called on the background thread only, as it may take
//! milliseconds.

use std::ffi::{CStr, CString, c_char, c_uint, c_ulonglong, c_void};
use std::mem::transmute;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::OnceLock;

use crate::base::linker;

type Init = unsafe extern "C" fn(c_uint) -> c_uint;
type Shutdown = unsafe extern "C" fn() -> c_uint;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_uint;
type Processes = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut Process) -> c_uint;

/// NVML's `nvmlProcessInfo_t`, since version 11.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Process {
    pid: c_uint,
    bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// NVML's `NVML_INIT_FLAG_NO_ATTACH`: no other device is touched.
const NO_ATTACH: c_uint = 2;
/// NVML's `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;
const SUCCESS: c_uint = 0;
/// Most processes on one device that a query returns.
const MOST: usize = 256;

/// The functions of the library. It is initialised only during a query, so that its descriptors are
/// open only then: the program may close descriptors at any time.
struct Nvml {
    init: Init,
    shutdown: Shutdown,
    by_uuid: ByUuid,
    processes: Processes,
}

impl Nvml {
    fn open() -> Option<Nvml> {
        let library = linker::open(c"libnvidia-ml.so.1")?;
        let find =
            |name: &CStr| Some(linker::symbol(library, name)).filter(|found| !found.is_null());
        let init = find(c"nvmlInitWithFlags")?;
        let shutdown = find(c"nvmlShutdown")?;
        let by_uuid = find(c"nvmlDeviceGetHandleByUUID")?;
        let processes = find(c"nvmlDeviceGetComputeRunningProcesses_v3")
            .or_else(|| find(c"nvmlDeviceGetComputeRunningProcesses_v2"))?;
        Some(Nvml {
            // SAFETY: NVML's function of this name has this signature.
            init: unsafe { transmute::<*mut c_void, Init>(init) },
            // SAFETY: as above.
            shutdown: unsafe { transmute::<*mut c_void, Shutdown>(shutdown) },
            // SAFETY: as above.
            by_uuid: unsafe { transmute::<*mut c_void, ByUuid>(by_uuid) },
            // SAFETY: as above; versions 2 and 3 have the same structure.
            processes: unsafe { transmute::<*mut c_void, Processes>(processes) },
        })
    }

    fn ask(&self, uuid: &CStr, pid: u32) -> Option<u64> {
        // SAFETY: any flags may be passed.
        if unsafe { (self.init)(NO_ATTACH) } != SUCCESS {
            return None;
        }
        let bytes = self.bytes_of(uuid, pid);
        // SAFETY: it was initialised above, and counts its initialisations.
        unsafe { (self.shutdown)() };
        bytes
    }

    fn bytes_of(&self, uuid: &CStr, pid: u32) -> Option<u64> {
        let mut device = ptr::null_mut();
        // SAFETY: a C string, and a place that is ours to write.
        if unsafe { (self.by_uuid)(uuid.as_ptr(), &mut device) } != SUCCESS {
            return None;
        }
        let mut all = vec![Process::default(); MOST];
        let mut count = MOST as c_uint;
        // SAFETY: the array has room for this count.
        if unsafe { (self.processes)(device, &mut count, all.as_mut_ptr()) } != SUCCESS {
            return None;
        }
        all.truncate(count as usize);
        if !is_initial_namespace() && !all.iter().all(|one| exists(one.pid)) {
            return None;
        }
        let ours = all
            .iter()
            .filter(|one| one.pid == pid && one.bytes != NOT_AVAILABLE);
        ours.map(|one| one.bytes).reduce(u64::saturating_add)
    }
}

/// True if process ids here are those of the machine. The number is Linux's `PROC_PID_INIT_INO`
/// (include/linux/proc_ns.h).
fn is_initial_namespace() -> bool {
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == 0xEFFF_FFFC)
}

/// True if a process has this id here. Drivers that do not translate ids for a container list the
/// machine's: one of them may be another process's here.
fn exists(pid: c_uint) -> bool {
    // SAFETY: signal 0 is not sent.
    pid <= i32::MAX as c_uint
        && (unsafe { libc::kill(pid as libc::pid_t, 0) } == 0
            || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH))
}

/// Returns the bytes that this process uses of the device with this UUID. `None` if NVML is not
/// installed or does not list the process.
pub fn used_by_this_process(uuid: [u8; 16]) -> Option<u64> {
    static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
    let nvml = NVML.get_or_init(Nvml::open).as_ref()?;
    let name = CString::new(gpushim_ledger::device_name(uuid)).ok()?;
    nvml.ask(&name, std::process::id())
}

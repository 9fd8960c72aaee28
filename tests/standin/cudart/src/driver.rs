//! Functions of the driver, as this runtime has fetched them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::OnceLock;

use crate::version::version;

/// Result of a call: a `cudaError_t`, which is also a `CUresult`.
pub type Code = c_int;
/// Handle of a stream, event, array, graph, pool or context.
pub type Handle = *mut c_void;
/// Callback for `cuLaunchHostFunc`.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

pub const SUCCESS: Code = 0;
pub const INVALID_VALUE: Code = 1;
/// Code for a driver that is missing or older than the runtime.
pub const INSUFFICIENT_DRIVER: Code = 35;
/// Code for a driver without the one function that the call needs.
pub const CALL_REQUIRES_NEWER_DRIVER: Code = 36;
pub const INVALID_DEVICE: Code = 101;

/// Default stream that the caller means by stream 0.
#[derive(Clone, Copy)]
pub enum Door {
    Legacy,
    PerThread,
}

macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        /// Functions of the driver for one kind of default stream; `None` for a function that it
        /// lacks.
        #[allow(non_snake_case)]
        pub struct Driver {
            $($name: Option<unsafe extern "C" fn($($type),*) -> Code>,)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl Driver {
            fn fetch(lookup: &Lookup, flags: u64) -> Driver {
                Driver {
                    $($name: {
                        let address = lookup.find(concat!(stringify!($name), "\0"), flags);
                        // SAFETY: null becomes None. Anything else is the driver's function of this
                        // name at this runtime's version. The table repeats its C prototype.
                        unsafe { transmute::<*mut c_void, Option<unsafe extern "C" fn($($type),*) -> Code>>(address) }
                    },)*
                }
            }

            $(
                /// Calls the driver's function of this name.
                ///
                /// # Safety
                /// The caller meets the requirements of the driver's function of the same name.
                pub unsafe fn $name(&self, $($arg: $type),*) -> Code {
                    match self.$name {
                        // SAFETY: the caller keeps the driver's rules.
                        Some(function) => unsafe { function($($arg),*) },
                        None => CALL_REQUIRES_NEWER_DRIVER,
                    }
                }
            )*
        }
    };
}

// `cuCtxGetDevice` and `cuCtxSynchronize` take a context from CUDA 13 on. Older drivers ignore the
// argument.
functions! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int);
    cuDeviceGetUuid(uuid: *mut c_void, device: c_int);
    cuDeviceTotalMem(bytes: *mut usize, device: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    cuDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: c_int);
    cuDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char);
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    cuDevicePrimaryCtxReset(device: c_int);
    cuDevicePrimaryCtxSetFlags(device: c_int, flags: c_uint);
    cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int);
    cuCtxSetCurrent(context: Handle);
    cuCtxGetCurrent(context: *mut Handle);
    cuCtxGetDevice(device: *mut c_int, context: Handle);
    cuCtxSynchronize(context: Handle);
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    cuCtxGetLimit(value: *mut usize, limit: c_int);
    cuCtxSetLimit(limit: c_int, value: usize);
    cuMemAlloc(pointer: *mut u64, bytes: usize);
    cuMemFree(pointer: u64);
    cuMemGetInfo(free: *mut usize, total: *mut usize);
    cuMemAllocManaged(pointer: *mut u64, bytes: usize, flags: c_uint);
    cuMemAllocPitch(pointer: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost(pointer: *mut c_void);
    cuMemHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(pointer: *mut c_void);
    cuMemHostGetDevicePointer(device: *mut u64, host: *mut c_void, flags: c_uint);
    cuMemHostGetFlags(flags: *mut c_uint, host: *mut c_void);
    cuPointerGetAttributes(count: c_uint, attributes: *const c_int, values: *const *mut c_void, pointer: u64);
    cuArrayCreate(array: *mut Handle, descriptor: *const crate::array::Descriptor);
    cuArray3DCreate(array: *mut Handle, descriptor: *const crate::array::Descriptor3D);
    cuArrayDestroy(array: Handle);
    cuMipmappedArrayCreate(array: *mut Handle, descriptor: *const crate::array::Descriptor3D, levels: c_uint);
    cuMipmappedArrayDestroy(array: Handle);
    cuMipmappedArrayGetLevel(array: *mut Handle, mipmapped: Handle, level: c_uint);
    cuMemcpy(to: u64, from: u64, bytes: usize);
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle);
    cuMemcpyHtoD(to: u64, from: *const c_void, bytes: usize);
    cuMemcpyDtoH(to: *mut c_void, from: u64, bytes: usize);
    cuMemcpyDtoD(to: u64, from: u64, bytes: usize);
    cuMemcpyHtoDAsync(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    cuMemcpyDtoHAsync(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
    cuMemcpyDtoDAsync(to: u64, from: u64, bytes: usize, stream: Handle);
    cuMemcpyPeer(to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize);
    cuMemcpyPeerAsync(to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle);
    cuMemcpy2D(copy: *const crate::copy::Copy2D);
    cuMemcpy2DAsync(copy: *const crate::copy::Copy2D, stream: Handle);
    cuMemsetD8(pointer: u64, value: u8, count: usize);
    cuMemsetD8Async(pointer: u64, value: u8, count: usize, stream: Handle);
    cuMemsetD2D8(pointer: u64, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8Async(pointer: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle);
    cuMemAllocAsync(pointer: *mut u64, bytes: usize, stream: Handle);
    cuMemAllocFromPoolAsync(pointer: *mut u64, bytes: usize, pool: Handle, stream: Handle);
    cuMemFreeAsync(pointer: u64, stream: Handle);
    cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
    cuDeviceGetMemPool(pool: *mut Handle, device: c_int);
    cuDeviceSetMemPool(device: c_int, pool: Handle);
    cuMemPoolCreate(pool: *mut Handle, properties: *const c_void);
    cuMemPoolDestroy(pool: Handle);
    cuMemPoolTrimTo(pool: Handle, keep: usize);
    cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cuMemPoolSetAccess(pool: Handle, descriptors: *const c_void, count: usize);
    cuMemPoolGetAccess(flags: *mut c_int, pool: Handle, location: *mut c_void);
    cuMemPoolExportToShareableHandle(handle: *mut c_void, pool: Handle, kind: c_int, flags: u64);
    cuMemPoolImportFromShareableHandle(pool: *mut Handle, handle: *mut c_void, kind: c_int, flags: u64);
    cuMemPoolExportPointer(data: *mut c_void, pointer: u64);
    cuMemPoolImportPointer(pointer: *mut u64, pool: Handle, data: *mut c_void);
    cuMemGetMemPool(pool: *mut Handle, location: *mut c_void, kind: c_int);
    cuMemGetDefaultMemPool(pool: *mut Handle, location: *mut c_void, kind: c_int);
    cuMemSetMemPool(location: *mut c_void, kind: c_int, pool: Handle);
    cuStreamCreate(stream: *mut Handle, flags: c_uint);
    cuStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int);
    cuStreamDestroy(stream: Handle);
    cuStreamSynchronize(stream: Handle);
    cuStreamQuery(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint);
    cuStreamGetFlags(stream: Handle, flags: *mut c_uint);
    cuStreamGetPriority(stream: Handle, priority: *mut c_int);
    cuStreamGetId(stream: Handle, id: *mut u64);
    cuStreamBeginCapture(stream: Handle, mode: c_int);
    cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    cuStreamIsCapturing(stream: Handle, status: *mut c_int);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, data: *mut c_void);
    cuEventCreate(event: *mut Handle, flags: c_uint);
    cuEventDestroy(event: Handle);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint);
    cuEventQuery(event: Handle);
    cuEventSynchronize(event: Handle);
    cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle);
    cuGraphCreate(graph: *mut Handle, flags: c_uint);
    cuGraphDestroy(graph: Handle);
    cuGraphClone(clone: *mut Handle, graph: Handle);
    cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: u64);
    cuGraphLaunch(exec: Handle, stream: Handle);
    cuGraphUpload(exec: Handle, stream: Handle);
    cuGraphExecDestroy(exec: Handle);
    cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize);
    cuGraphNodeGetType(node: Handle, kind: *mut c_int);
    cuGraphAddMemAllocNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, parameters: *mut c_void);
    cuGraphAddMemFreeNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, pointer: u64);
    cuDeviceGraphMemTrim(device: c_int);
    cuDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut c_void);
    cuDeviceSetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut c_void);
    cuIpcGetMemHandle(handle: *mut crate::ipc::IpcHandle, pointer: u64);
    cuIpcOpenMemHandle(pointer: *mut u64, handle: crate::ipc::IpcHandle, flags: c_uint);
    cuIpcCloseMemHandle(pointer: u64);
    cuIpcGetEventHandle(handle: *mut crate::ipc::IpcHandle, event: Handle);
    cuIpcOpenEventHandle(event: *mut Handle, handle: crate::ipc::IpcHandle);
    cuDeviceCanAccessPeer(able: *mut c_int, device: c_int, peer: c_int);
    cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: c_int, peer: c_int);
    cuCtxEnablePeerAccess(context: Handle, flags: c_uint);
    cuCtxDisablePeerAccess(context: Handle);
}

type GetV1 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> Code;
type GetV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Code;

/// `cuGetProcAddress` in the form that this version of the runtime knows.
pub enum Lookup {
    V1(GetV1),
    V2(GetV2),
}

impl Lookup {
    fn open() -> Option<Lookup> {
        // SAFETY: a plain dlopen of a library that every CUDA process loads.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is live and the name ends in a nul.
            unsafe { libc::dlsym(library, name.as_ptr()) }
        };
        let v2 = match version() {
            12000.. => symbol(c"cuGetProcAddress_v2"),
            _ => null_mut(),
        };
        if !v2.is_null() {
            // SAFETY: the driver's export of that name has this prototype.
            return Some(Lookup::V2(unsafe { transmute::<*mut c_void, GetV2>(v2) }));
        }
        let v1 = symbol(c"cuGetProcAddress");
        // SAFETY: as above, for the older prototype.
        (!v1.is_null()).then(|| Lookup::V1(unsafe { transmute::<*mut c_void, GetV1>(v1) }))
    }

    /// Asks the driver for a function by name, version and flags.
    ///
    /// # Safety
    /// `name` ends in a nul; the pointers are null or valid for a write.
    pub unsafe fn ask(
        &self,
        name: *const c_char,
        found: *mut *mut c_void,
        asked: c_int,
        flags: u64,
        status: *mut c_int,
    ) -> Code {
        match self {
            // SAFETY: the caller's pointers go through as they are.
            Lookup::V2(get) => unsafe { get(name, found, asked, flags, status) },
            // SAFETY: likewise; the status is filled in from the result.
            Lookup::V1(get) => unsafe {
                let code = get(name, found, asked, flags);
                if !status.is_null() {
                    *status = c_int::from(code != SUCCESS);
                }
                code
            },
        }
    }

    fn find(&self, name: &'static str, flags: u64) -> *mut c_void {
        let mut found = null_mut();
        let mut status = 0;
        // SAFETY: the table's names end in a nul and both results are locals of this function.
        let code = unsafe {
            self.ask(
                name.as_ptr().cast(),
                &mut found,
                version(),
                flags,
                &mut status,
            )
        };
        if code == SUCCESS { found } else { null_mut() }
    }
}

/// Driver functions fetched once: the search function and both tables.
pub struct Loaded {
    pub lookup: Lookup,
    legacy: Driver,
    per_thread: Driver,
}

fn load() -> Result<Loaded, Code> {
    let lookup = Lookup::open().ok_or(INSUFFICIENT_DRIVER)?;
    // `cuGetProcAddress` is looked up through itself, as the real runtime does.
    let again = lookup.find("cuGetProcAddress\0", 0);
    let lookup = match &lookup {
        Lookup::V2(_) if !again.is_null() => {
            // SAFETY: from CUDA 12.0 on the name stands for the newer prototype.
            Lookup::V2(unsafe { transmute::<*mut c_void, GetV2>(again) })
        }
        _ => lookup,
    };
    // Flags: 0 is the legacy default stream, 2 the per-thread one.
    let legacy = Driver::fetch(&lookup, 0);
    let per_thread = Driver::fetch(&lookup, 2);
    let mut driver_version = 0;
    // SAFETY: the result is a local of this function.
    let code = unsafe { legacy.cuDriverGetVersion(&mut driver_version) };
    if code != SUCCESS || driver_version / 1000 < version() / 1000 {
        return Err(INSUFFICIENT_DRIVER);
    }
    // SAFETY: no requirement beyond the loaded library.
    match unsafe { legacy.cuInit(0) } {
        SUCCESS => Ok(Loaded {
            lookup,
            legacy,
            per_thread,
        }),
        code => Err(code),
    }
}

/// Loads and initialises the driver at the first call. A failure is remembered.
pub fn loaded() -> Result<&'static Loaded, Code> {
    static LOADED: OnceLock<Result<Loaded, Code>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(|code| *code)
}

/// Returns the driver's functions for this default stream.
pub fn driver(door: Door) -> Result<&'static Driver, Code> {
    let loaded = loaded()?;
    Ok(match door {
        Door::Legacy => &loaded.legacy,
        Door::PerThread => &loaded.per_thread,
    })
}

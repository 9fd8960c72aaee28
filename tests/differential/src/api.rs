//! The driver's functions, found as a program finds them: by `dlopen` and `dlsym`.

use std::ffi::{CStr, c_void};

/// Properties of a pool (`CUmemPoolProps`).
#[repr(C)]
pub struct PoolProps {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
    pub kind: i32,
    /// Handle types that it can be exported as.
    pub handles: i32,
    /// Device that has the memory.
    pub location: Location,
    pub security: u64,
    /// Most bytes; 0 for no limit.
    pub max_size: usize,
    pub rest: [u8; 56],
}

/// Place of memory (`CUmemLocation`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    kind: i32,
    device: i32,
}

impl Location {
    /// Place of a device's own memory.
    pub fn device(device: u8) -> Location {
        // CU_MEM_LOCATION_TYPE_DEVICE
        Location {
            kind: 1,
            device: device.into(),
        }
    }
}

/// Access of a device to memory (`CUmemAccessDesc`).
#[repr(C)]
pub struct Access {
    /// Device that gets access.
    pub location: Location,
    /// 0 nothing, 1 read, 3 write too.
    pub flags: i32,
}

/// Properties of physical memory (`CUmemAllocationProp`).
#[repr(C)]
pub struct MemoryProps {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
    pub kind: i32,
    /// Handle types that it can be exported as.
    pub handles: i32,
    /// Device that has the memory.
    pub location: Location,
    /// No compression, no use by other devices.
    pub rest: [u64; 2],
}

/// Name of a block for other processes (`CUipcMemHandle`).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IpcHandle(pub [u64; 8]);

/// Bytes that a kernel of the stand-in touches.
#[repr(C)]
pub struct Touch {
    /// Address of the first byte.
    pub address: u64,
    pub bytes: u64,
    /// Not 0 if it writes them.
    pub writes: u32,
}

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($arg:ty),*);)*) => {
        /// The functions; those with two symbols come as `[plain, per thread]`.
        pub struct Api { $(pub $name: unsafe extern "C" fn($($arg),*) -> i32,)* }

        impl Api {
            /// Opens the driver and finds its functions.
            pub fn load() -> Result<Api, String> {
                // SAFETY: a constant name; the library stays loaded for the life of the process.
                let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
                if library.is_null() {
                    return Err("libcuda.so.1 is not to be found: LD_LIBRARY_PATH must name the stand-in's folder".into());
                }
                Ok(Api { $($name: {
                    let symbol: &CStr = $symbol;
                    // SAFETY: the handle of an open library.
                    let found = unsafe { libc::dlsym(library, symbol.as_ptr()) };
                    if found.is_null() {
                        return Err(format!("the driver has no {}", symbol.to_string_lossy()));
                    }
                    // SAFETY: the function of this name has this signature.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> i32>(found) }
                },)* })
            }
        }
    };
}

functions! {
    init: c"cuInit" (u32);
    ctx_create: c"cuCtxCreate_v2" (*mut u64, u32, i32);
    ctx_destroy: c"cuCtxDestroy_v2" (u64);
    ctx_set: c"cuCtxSetCurrent" (u64);
    ctx_get: c"cuCtxGetCurrent" (*mut u64);
    ctx_push: c"cuCtxPushCurrent_v2" (u64);
    ctx_pop: c"cuCtxPopCurrent_v2" (*mut u64);
    ctx_sync: c"cuCtxSynchronize" ();
    ctx_device: c"cuCtxGetDevice" (*mut i32);
    green_create: c"cuGreenCtxCreate" (*mut u64, u64, i32, u32);
    green_destroy: c"cuGreenCtxDestroy" (u64);
    green_context: c"cuCtxFromGreenCtx" (*mut u64, u64);
    green_stream: c"cuGreenCtxStreamCreate" (*mut u64, u64, u32, i32);
    primary_retain: c"cuDevicePrimaryCtxRetain" (*mut u64, i32);
    primary_release: c"cuDevicePrimaryCtxRelease_v2" (i32);
    primary_reset: c"cuDevicePrimaryCtxReset_v2" (i32);
    primary_state: c"cuDevicePrimaryCtxGetState" (i32, *mut u32, *mut i32);
    mem_info: c"cuMemGetInfo_v2" (*mut usize, *mut usize);
    alloc: c"cuMemAlloc_v2" (*mut u64, usize);
    alloc_pitch: c"cuMemAllocPitch_v2" (*mut u64, *mut usize, usize, usize, u32);
    free: c"cuMemFree_v2" (u64);
    address_range: c"cuMemGetAddressRange_v2" (*mut u64, *mut usize, u64);
    pointer_attribute: c"cuPointerGetAttribute" (*mut u64, i32, u64);
    pointer_attributes: c"cuPointerGetAttributes" (u32, *const i32, *const *mut u64, u64);
    pointer_set: c"cuPointerSetAttribute" (*const u32, i32, u64);
    ipc_get: c"cuIpcGetMemHandle" (*mut IpcHandle, u64);
    ipc_open: c"cuIpcOpenMemHandle_v2" (*mut u64, IpcHandle, u32);
    ipc_close: c"cuIpcCloseMemHandle" (u64);
    range_handle: c"cuMemGetHandleForAddressRange" (*mut i32, u64, usize, i32, u64);
    pool_export_pointer: c"cuMemPoolExportPointer" (*mut IpcHandle, u64);
    advise: c"cuMemAdvise" (u64, usize, i32, i32);
    advise_v2: c"cuMemAdvise_v2" (u64, usize, i32, Location);
    prefetch: c"cuMemPrefetchAsync" (u64, usize, i32, u64);
    prefetch_v2: c"cuMemPrefetchAsync_v2" (u64, usize, Location, u32, u64);
    attach: c"cuStreamAttachMemAsync" (u64, u64, usize, u32);
    range_attribute: c"cuMemRangeGetAttribute" (*mut u64, usize, i32, u64, usize);
    range_attributes: c"cuMemRangeGetAttributes" (*const *mut u64, *const usize, *const i32, usize, u64, usize);
    reserve: c"cuMemAddressReserve" (*mut u64, usize, usize, u64, u64);
    free_addresses: c"cuMemAddressFree" (u64, usize);
    memory_create: c"cuMemCreate" (*mut u64, usize, *const MemoryProps, u64);
    memory_release: c"cuMemRelease" (u64);
    memory_export: c"cuMemExportToShareableHandle" (*mut i32, u64, i32, u64);
    memory_import: c"cuMemImportFromShareableHandle" (*mut u64, u64, i32);
    retain_handle: c"cuMemRetainAllocationHandle" (*mut u64, u64);
    map: c"cuMemMap" (u64, usize, usize, u64, u64);
    unmap: c"cuMemUnmap" (u64, usize);
    set_access: c"cuMemSetAccess" (u64, usize, *const Access, usize);
    get_access: c"cuMemGetAccess" (*mut u64, *const Location, u64);
    host_alloc: c"cuMemHostAlloc" (*mut u64, usize, u32);
    host_free: c"cuMemFreeHost" (u64);
    host_register: c"cuMemHostRegister_v2" (u64, usize, u32);
    host_unregister: c"cuMemHostUnregister" (u64);
    host_device_pointer: c"cuMemHostGetDevicePointer_v2" (*mut u64, u64, u32);
    host_flags: c"cuMemHostGetFlags" (*mut u32, u64);
    copy_to_host: c"cuMemcpyDtoH_v2" (*mut u8, u64, usize);
    copy_on_device_async: c"cuMemcpyDtoDAsync_v2" (u64, u64, usize, u64);
    copy_on_device_async_ptsz: c"cuMemcpyDtoDAsync_v2_ptsz" (u64, u64, usize, u64);
    copy_peer: c"cuMemcpyPeer" (u64, u64, u64, u64, usize);
    copy_peer_async: c"cuMemcpyPeerAsync" (u64, u64, u64, u64, usize, u64);
    copy_from_host_async: c"cuMemcpyHtoDAsync_v2" (u64, *const u8, usize, u64);
    set_async: c"cuMemsetD8Async" (u64, u8, usize, u64);
    set_async_ptsz: c"cuMemsetD8Async_ptsz" (u64, u8, usize, u64);
    stream_create: c"cuStreamCreate" (*mut u64, u32);
    stream_destroy: c"cuStreamDestroy_v2" (u64);
    stream_sync: c"cuStreamSynchronize" (u64);
    stream_sync_ptsz: c"cuStreamSynchronize_ptsz" (u64);
    stream_query: c"cuStreamQuery" (u64);
    stream_wait: c"cuStreamWaitEvent" (u64, u64, u32);
    stream_wait_ptsz: c"cuStreamWaitEvent_ptsz" (u64, u64, u32);
    event_create: c"cuEventCreate" (*mut u64, u32);
    event_destroy: c"cuEventDestroy_v2" (u64);
    event_record: c"cuEventRecord" (u64, u64);
    event_record_ptsz: c"cuEventRecord_ptsz" (u64, u64);
    event_query: c"cuEventQuery" (u64);
    capture_begin: c"cuStreamBeginCapture_v2" (u64, u32);
    capture_begin_ptsz: c"cuStreamBeginCapture_v2_ptsz" (u64, u32);
    capture_end: c"cuStreamEndCapture" (u64, *mut u64);
    capture_end_ptsz: c"cuStreamEndCapture_ptsz" (u64, *mut u64);
    is_capturing: c"cuStreamIsCapturing" (u64, *mut u32);
    is_capturing_ptsz: c"cuStreamIsCapturing_ptsz" (u64, *mut u32);
    exchange_mode: c"cuThreadExchangeStreamCaptureMode" (*mut u32);
    instantiate: c"cuGraphInstantiateWithFlags" (*mut u64, u64, u64);
    launch: c"cuGraphLaunch" (u64, u64);
    launch_ptsz: c"cuGraphLaunch_ptsz" (u64, u64);
    graph_destroy: c"cuGraphDestroy" (u64);
    exec_destroy: c"cuGraphExecDestroy" (u64);
    graph_trim: c"cuDeviceGraphMemTrim" (i32);
    alloc_async: c"cuMemAllocAsync" (*mut u64, usize, u64);
    alloc_async_ptsz: c"cuMemAllocAsync_ptsz" (*mut u64, usize, u64);
    alloc_from: c"cuMemAllocFromPoolAsync" (*mut u64, usize, u64, u64);
    alloc_from_ptsz: c"cuMemAllocFromPoolAsync_ptsz" (*mut u64, usize, u64, u64);
    free_async: c"cuMemFreeAsync" (u64, u64);
    free_async_ptsz: c"cuMemFreeAsync_ptsz" (u64, u64);
    pool_create: c"cuMemPoolCreate" (*mut u64, *const PoolProps);
    pool_destroy: c"cuMemPoolDestroy" (u64);
    pool_trim: c"cuMemPoolTrimTo" (u64, usize);
    pool_get: c"cuMemPoolGetAttribute" (u64, i32, *mut u64);
    pool_set: c"cuMemPoolSetAttribute" (u64, i32, *mut u64);
    pool_access: c"cuMemPoolSetAccess" (u64, *const Access, usize);
    default_pool: c"cuDeviceGetDefaultMemPool" (*mut u64, i32);
    current_pool: c"cuDeviceGetMemPool" (*mut u64, i32);
    choose_pool: c"cuDeviceSetMemPool" (i32, u64);
    peer_enable: c"cuCtxEnablePeerAccess" (u64, u32);
    peer_disable: c"cuCtxDisablePeerAccess" (u64);
    kernel: c"standin_launch" (u64, u64, u32, *const Touch);
    findings: c"standin_findings" ();
    forgive: c"standin_forgive" (u64, u64);
    peak: c"standin_peak" (i32, *mut u64);
}

//! The driver functions that the shim knows, hooked or only called, with their signatures.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys;

use super::declare;
use crate::cuda::types::{CUresult, DevicePtr, Handle};

declare! {
    // Device memory.
    fn cuMemAlloc_v2(address: *mut DevicePtr, bytes: usize);
    fn cuMemFree_v2(address: DevicePtr);
    fn cuMemAllocPitch_v2(
        address: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: u32,
    );
    fn cuMemAllocManaged(address: *mut DevicePtr, bytes: usize, flags: u32);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemGetAddressRange_v2(base: *mut DevicePtr, size: *mut usize, address: DevicePtr);
    // Stream-ordered memory.
    fn cuMemAllocAsync(address: *mut DevicePtr, bytes: usize, stream: Handle);
    fn cuMemAllocAsync_ptsz(address: *mut DevicePtr, bytes: usize, stream: Handle);
    fn cuMemAllocFromPoolAsync(address: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle);
    fn cuMemAllocFromPoolAsync_ptsz(
        address: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle,
    );
    fn cuMemFreeAsync(address: DevicePtr, stream: Handle);
    fn cuMemFreeAsync_ptsz(address: DevicePtr, stream: Handle);
    // Pools.
    fn cuMemPoolCreate(pool: *mut Handle, properties: *const sys::CUmemPoolProps);
    fn cuMemPoolDestroy(pool: Handle);
    fn cuMemPoolTrimTo(pool: Handle, keep: usize);
    fn cuMemPoolSetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void);
    fn cuMemPoolGetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void);
    fn cuMemPoolSetAccess(pool: Handle, map: *const sys::CUmemAccessDesc, count: usize);
    fn cuDeviceSetMemPool(device: c_int, pool: Handle);
    fn cuMemSetMemPool(location: *mut c_void, kind: c_uint, pool: Handle);
    // Addresses.
    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: DevicePtr);
    fn cuPointerGetAttributes(
        count: c_uint, attributes: *mut c_int, values: *mut *mut c_void, address: DevicePtr,
    );
    // Contexts.
    fn cuCtxSetCurrent(context: Handle);
    fn cuCtxPushCurrent(context: Handle);
    fn cuCtxPushCurrent_v2(context: Handle);
    fn cuCtxPopCurrent(context: *mut Handle);
    fn cuCtxPopCurrent_v2(context: *mut Handle);
    fn cuCtxCreate(context: *mut Handle, flags: c_uint, device: c_int);
    fn cuCtxCreate_v2(context: *mut Handle, flags: c_uint, device: c_int);
    fn cuCtxCreate_v3(
        context: *mut Handle, affinity: *mut c_void, n: c_int, flags: c_uint, device: c_int,
    );
    fn cuCtxCreate_v4(context: *mut Handle, parameters: *mut c_void, flags: c_uint, device: c_int);
    fn cuCtxDestroy(context: Handle);
    fn cuCtxDestroy_v2(context: Handle);
    fn cuCtxAttach(context: *mut Handle, flags: c_uint);
    fn cuCtxDetach(context: Handle);
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    fn cuDevicePrimaryCtxRelease(device: c_int);
    fn cuDevicePrimaryCtxRelease_v2(device: c_int);
    fn cuDevicePrimaryCtxReset(device: c_int);
    fn cuDevicePrimaryCtxReset_v2(device: c_int);
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int);
    fn cuCtxSynchronize();
    fn cuCtxSynchronize_v2(context: Handle);
    fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint);
    fn cuCtxDisablePeerAccess(peer: Handle);
    // Green contexts.
    fn cuGreenCtxCreate(green: *mut Handle, processors: *mut c_void, device: c_int, flags: c_uint);
    fn cuGreenCtxDestroy(green: Handle);
    fn cuGreenCtxStreamCreate(stream: *mut Handle, green: Handle, flags: c_uint, priority: c_int);
    // Streams and events.
    fn cuStreamBeginCapture(stream: Handle);
    fn cuStreamBeginCapture_ptsz(stream: Handle);
    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint);
    fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_uint);
    fn cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, dependencies: *const c_void, data: *const c_void,
        n: usize, mode: c_uint,
    );
    fn cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, dependencies: *const c_void, data: *const c_void,
        n: usize, mode: c_uint,
    );
    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    fn cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle);
    fn cuStreamSynchronize(stream: Handle);
    fn cuStreamSynchronize_ptsz(stream: Handle);
    fn cuEventRecord(event: Handle, stream: Handle);
    fn cuEventRecord_ptsz(event: Handle, stream: Handle);
    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint);
    fn cuEventRecordWithFlags_ptsz(event: Handle, stream: Handle, flags: c_uint);
    fn cuEventSynchronize(event: Handle);
    fn cuStreamDestroy(stream: Handle);
    fn cuStreamDestroy_v2(stream: Handle);
    fn cuStreamCreate(stream: *mut Handle, flags: c_uint);
    fn cuStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int);
    // Graphs.
    fn cuGraphInstantiate(
        exec: *mut Handle, graph: Handle, error: *mut Handle, log: *mut c_char, size: usize,
    );
    fn cuGraphInstantiate_v2(
        exec: *mut Handle, graph: Handle, error: *mut Handle, log: *mut c_char, size: usize,
    );
    fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: c_ulonglong);
    fn cuGraphInstantiateWithParams(exec: *mut Handle, graph: Handle, parameters: *mut c_void);
    fn cuGraphInstantiateWithParams_ptsz(exec: *mut Handle, graph: Handle, parameters: *mut c_void);
    fn cuGraphClone(clone: *mut Handle, original: Handle);
    fn cuGraphAddChildGraphNode(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, n: usize, child: Handle,
    );
    fn cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle);
    fn cuGraphExecUpdate(exec: Handle, graph: Handle, node: *mut Handle, info: *mut c_uint);
    fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, info: *mut c_void);
    fn cuGraphLaunch(exec: Handle, stream: Handle);
    fn cuGraphLaunch_ptsz(exec: Handle, stream: Handle);
    fn cuGraphUpload(exec: Handle, stream: Handle);
    fn cuGraphUpload_ptsz(exec: Handle, stream: Handle);
    fn cuGraphDestroy(graph: Handle);
    fn cuGraphExecDestroy(exec: Handle);
    fn cuGraphAddMemAllocNode(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, n: usize,
        parameters: *mut sys::CUDA_MEM_ALLOC_NODE_PARAMS,
    );
    fn cuGraphAddMemFreeNode(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, n: usize,
        address: DevicePtr,
    );
    fn cuGraphAddNode(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, n: usize,
        parameters: *mut sys::CUgraphNodeParams,
    );
    fn cuGraphAddNode_v2(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, data: *const c_void,
        n: usize, parameters: *mut sys::CUgraphNodeParams,
    );
    // Virtual memory.
    fn cuMemAddressReserve(
        address: *mut u64, bytes: usize, alignment: usize, wished: u64, flags: u64,
    );
    fn cuMemImportFromShareableHandle(
        handle: *mut c_ulonglong, shared: *mut c_void, kind: c_uint,
    );
    fn cuMemCreate(
        handle: *mut c_ulonglong, bytes: usize, properties: *const sys::CUmemAllocationProp,
        flags: c_ulonglong,
    );
    fn cuMemRelease(handle: c_ulonglong);
    fn cuMemMap(
        address: DevicePtr, bytes: usize, offset: usize, handle: c_ulonglong, flags: c_ulonglong,
    );
    fn cuMemAddressFree(address: DevicePtr, bytes: usize);
    fn cuMemSetAccess(
        address: DevicePtr, bytes: usize, access: *const sys::CUmemAccessDesc, count: usize,
    );
    fn cuMemGetAccess(
        flags: *mut c_ulonglong, location: *const sys::CUmemLocation, address: DevicePtr,
    );
    fn cuMemUnmap(address: DevicePtr, bytes: usize);
    // Other processes and other APIs.
    fn cuIpcGetMemHandle(handle: *mut c_void, address: DevicePtr);
    fn cuIpcOpenMemHandle(address: *mut DevicePtr, handle: sys::CUipcMemHandle, flags: c_uint);
    fn cuIpcOpenMemHandle_v2(address: *mut DevicePtr, handle: sys::CUipcMemHandle, flags: c_uint);
    fn cuIpcCloseMemHandle(address: DevicePtr);
    fn cuMemGetHandleForAddressRange(
        handle: *mut c_void, address: DevicePtr, bytes: usize, kind: c_uint, flags: c_ulonglong,
    );
    fn cuPointerSetAttribute(value: *const c_void, attribute: c_int, address: DevicePtr);
    fn cuMemRetainAllocationHandle(handle: *mut c_ulonglong, address: *mut c_void);
    fn cuMemGetAllocationPropertiesFromHandle(
        properties: *mut sys::CUmemAllocationProp, handle: c_ulonglong,
    );
    fn cuImportExternalMemory(
        memory: *mut Handle, descriptor: *const sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    );
    fn cuDestroyExternalMemory(memory: Handle);
    // Arrays.
    fn cuArrayCreate_v2(array: *mut Handle, descriptor: *const sys::CUDA_ARRAY_DESCRIPTOR);
    fn cuArray3DCreate_v2(array: *mut Handle, descriptor: *const sys::CUDA_ARRAY3D_DESCRIPTOR);
    fn cuArrayDestroy(array: Handle);
    fn cuMipmappedArrayCreate(
        array: *mut Handle, descriptor: *const sys::CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint,
    );
    fn cuMipmappedArrayDestroy(array: Handle);
    // Host memory.
    fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize);
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemFreeHost(address: *mut c_void);
    fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemHostUnregister(address: *mut c_void);
    fn cuMemHostGetDevicePointer_v2(
        device: *mut DevicePtr, address: *mut c_void, flags: c_uint,
    );
    fn cuMemHostGetFlags(flags: *mut c_uint, address: *mut c_void);
    // Code.
    fn cuModuleLoad(module: *mut Handle, file: *const c_char);
    fn cuModuleLoadData(module: *mut Handle, image: *const c_void);
    fn cuModuleLoadDataEx(
        module: *mut Handle, image: *const c_void, n: c_uint, options: *mut c_int,
        values: *mut *mut c_void,
    );
    fn cuModuleLoadFatBinary(module: *mut Handle, binary: *const c_void);
    fn cuLibraryLoadData(
        library: *mut Handle, code: *const c_void, jit_options: *mut c_int,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int,
        values: *mut *mut c_void, count: c_uint,
    );
    fn cuLibraryLoadFromFile(
        library: *mut Handle, file: *const c_char, jit_options: *mut c_int,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int,
        values: *mut *mut c_void, count: c_uint,
    );
    fn cuLibraryGetModule(module: *mut Handle, library: Handle);
    fn cuKernelGetFunction(function: *mut Handle, kernel: Handle);
    // Devices.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int);
    // Look-up.
    fn cuGetProcAddress(
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64,
    );
    fn cuGetProcAddress_v2(
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64,
        status: *mut c_int,
    );
    // Called and never hooked.
    fn cuCtxFromGreenCtx(context: *mut Handle, green: Handle);
    fn cuCtxGetCurrent(context: *mut Handle);
    fn cuCtxGetDevice(device: *mut c_int);
    fn cuCtxGetFlags(flags: *mut c_uint);
    fn cuCtxRecordEvent(context: Handle, event: Handle);
    fn cuCtxSetFlags(flags: c_uint);
    fn cuCtxWaitEvent(context: Handle, event: Handle);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    fn cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
    fn cuDeviceGetMemPool(pool: *mut Handle, device: c_int);
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetUuid_v2(uuid: *mut sys::CUuuid, device: c_int);
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuEventCreate(event: *mut Handle, flags: u32);
    fn cuEventQuery(event: Handle);
    fn cuMemExportToShareableHandle(
        shared: *mut c_void, handle: c_ulonglong, kind: c_uint, flags: c_ulonglong,
    );
    fn cuStreamGetCtx(stream: Handle, context: *mut Handle);
    fn cuStreamIsCapturing(stream: Handle, status: *mut c_int);
    fn cuStreamIsCapturing_ptsz(stream: Handle, status: *mut c_int);
    fn cuStreamQuery(stream: Handle);
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32);
}

/* Base names of the driver functions that come in variants or that a shim would want to hook. */
#ifndef NAMES_H
#define NAMES_H
static const char *const NAMES[] = {
    "cuInit", "cuDriverGetVersion", "cuDeviceGet", "cuDeviceTotalMem", "cuCtxCreate", "cuCtxDestroy", "cuCtxDetach",
    "cuCtxSetCurrent", "cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxGetDevice", "cuCtxSynchronize",
    "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess", "cuCtxRecordEvent", "cuCtxWaitEvent",
    "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxSetFlags",
    "cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuMemAllocPitch", "cuMemAllocManaged", "cuMemGetAddressRange",
    "cuMemAllocHost", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister", "cuMemHostUnregister",
    "cuMemHostGetDevicePointer", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemAllocFromPoolAsync", "cuMemPoolCreate",
    "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess",
    "cuMemAddressReserve", "cuMemAddressFree", "cuMemGetHandleForAddressRange", "cuMemExportToShareableHandle",
    "cuMemGetAllocationPropertiesFromHandle", "cuArrayCreate", "cuArray3DCreate",
    "cuArrayDestroy", "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", "cuIpcGetMemHandle", "cuIpcOpenMemHandle",
    "cuIpcCloseMemHandle", "cuPointerGetAttribute", "cuPointerSetAttribute", "cuImportExternalMemory",
    "cuDestroyExternalMemory", "cuStreamCreate", "cuStreamCreateWithPriority", "cuStreamDestroy",
    "cuStreamBeginCapture", "cuStreamBeginCaptureToGraph", "cuStreamEndCapture", "cuStreamIsCapturing",
    "cuStreamGetCaptureInfo", "cuStreamWaitEvent", "cuStreamSynchronize", "cuStreamQuery", "cuEventCreate",
    "cuEventRecord", "cuEventDestroy", "cuEventElapsedTime", "cuEventSynchronize", "cuGraphCreate", "cuGraphDestroy",
    "cuGraphInstantiate", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams", "cuGraphClone",
    "cuGraphAddChildGraphNode", "cuGraphExecChildGraphNodeSetParams", "cuGraphExecUpdate", "cuGraphExecDestroy",
    "cuGraphAddMemAllocNode", "cuGraphAddMemFreeNode", "cuGraphAddNode", "cuGraphAddDependencies",
    "cuGraphKernelNodeGetParams", "cuGraphLaunch", "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary", "cuModuleUnload", "cuLibraryGetModule", "cuKernelGetFunction", "cuMemPrefetchAsync",
    "cuMemAdvise", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyAsync", "cuMemsetD8", "cuMemsetD8Async", "cuLaunchKernel",
    "cuLaunchHostFunc", "cuThreadExchangeStreamCaptureMode",
};
enum { NAME_COUNT = sizeof NAMES / sizeof *NAMES };
#endif

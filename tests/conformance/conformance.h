/* What a CUDA driver does, observed: shared declarations. No CUDA header is needed; the few types are declared here. */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUstream, *CUevent, *CUarray, *CUmipmappedArray, *CUmemoryPool;
typedef void *CUgraph, *CUgraphExec, *CUgraphNode;
typedef unsigned long long CUhandle; /* CUmemGenericAllocationHandle */

typedef struct { int type, id; } Location; /* CUmemLocation: 1 device, 2 host, 3 host NUMA, 4 current NUMA */
typedef struct {
    int type, handles;
    Location location;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
} AllocationProp;
typedef struct { Location location; int flags; } AccessDesc;
typedef struct {
    int type, handles;
    Location location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char rdma, reserved[53];
} PoolProps;
typedef struct {
    PoolProps pool;
    const AccessDesc *access;
    size_t access_count, bytes;
    CUdeviceptr pointer;
} AllocNodeParams;
typedef struct { CUdeviceptr dst; size_t pitch; unsigned value, element; size_t width, height; } MemsetNodeParams;
typedef struct { size_t width, height; int format; unsigned channels; } ArrayDescriptor;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } Array3DDescriptor;
typedef struct {
    size_t src_x, src_y; int src_type; const void *src_host; CUdeviceptr src_device; CUarray src_array; size_t src_pitch;
    size_t dst_x, dst_y; int dst_type; void *dst_host; CUdeviceptr dst_device; CUarray dst_array; size_t dst_pitch;
    size_t width, height;
} Memcpy2D;
typedef struct { char bytes[64]; } IpcHandle;

#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)
#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
enum { MISSING = -12345, NOT_READY = 600 };

/* Every driver function used, as dlsym finds it. A missing one answers MISSING. */
#define FUNCTIONS(F) \
    F(cuInit, (unsigned)) F(cuDriverGetVersion, (int *)) F(cuDeviceGet, (CUdevice *, int)) F(cuDeviceGetCount, (int *)) \
    F(cuDeviceTotalMem_v2, (size_t *, CUdevice)) F(cuDeviceGetAttribute, (int *, int, CUdevice)) \
    F(cuDeviceGetName, (char *, int, CUdevice)) F(cuDeviceGetUuid_v2, (void *, CUdevice)) \
    F(cuGetErrorName, (int, const char **)) F(cuGetErrorString, (int, const char **)) \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) F(cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
    F(cuDevicePrimaryCtxReset_v2, (CUdevice)) F(cuDevicePrimaryCtxSetFlags_v2, (CUdevice, unsigned)) \
    F(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) \
    F(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice)) F(cuCtxCreate_v3, (CUcontext *, void *, int, unsigned, CUdevice)) \
    F(cuCtxCreate_v4, (CUcontext *, void *, unsigned, CUdevice)) F(cuCtxDestroy_v2, (CUcontext)) \
    F(cuCtxSetCurrent, (CUcontext)) F(cuCtxGetCurrent, (CUcontext *)) F(cuCtxPushCurrent_v2, (CUcontext)) \
    F(cuCtxPopCurrent_v2, (CUcontext *)) F(cuCtxGetDevice, (CUdevice *)) F(cuCtxGetDevice_v2, (CUdevice *, CUcontext)) \
    F(cuCtxSynchronize, (void)) F(cuCtxSynchronize_v2, (CUcontext)) F(cuCtxGetFlags, (unsigned *)) F(cuCtxGetApiVersion, (CUcontext, unsigned *)) \
    F(cuCtxGetId, (CUcontext, unsigned long long *)) F(cuCtxGetLimit, (size_t *, int)) F(cuCtxSetLimit, (int, size_t)) \
    F(cuCtxGetStreamPriorityRange, (int *, int *)) F(cuCtxRecordEvent, (CUcontext, CUevent)) F(cuCtxWaitEvent, (CUcontext, CUevent)) \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t)) F(cuMemFree_v2, (CUdeviceptr)) F(cuMemGetInfo_v2, (size_t *, size_t *)) \
    F(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) F(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned)) \
    F(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr)) \
    F(cuMemHostAlloc, (void **, size_t, unsigned)) F(cuMemAllocHost_v2, (void **, size_t)) F(cuMemFreeHost, (void *)) \
    F(cuMemHostRegister_v2, (void *, size_t, unsigned)) F(cuMemHostUnregister, (void *)) F(cuMemHostGetFlags, (unsigned *, void *)) \
    F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned)) \
    F(cuArrayCreate_v2, (CUarray *, const ArrayDescriptor *)) F(cuArrayDestroy, (CUarray)) \
    F(cuArray3DCreate_v2, (CUarray *, const Array3DDescriptor *)) F(cuArrayGetDescriptor_v2, (ArrayDescriptor *, CUarray)) \
    F(cuArray3DGetDescriptor_v2, (Array3DDescriptor *, CUarray)) \
    F(cuMipmappedArrayCreate, (CUmipmappedArray *, const Array3DDescriptor *, unsigned)) F(cuMipmappedArrayDestroy, (CUmipmappedArray)) \
    F(cuMipmappedArrayGetLevel, (CUarray *, CUmipmappedArray, unsigned)) \
    F(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t)) F(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
    F(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t)) F(cuMemcpy, (CUdeviceptr, CUdeviceptr, size_t)) \
    F(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream)) \
    F(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    F(cuMemcpy2D_v2, (const Memcpy2D *)) F(cuMemcpyPeer, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t)) \
    F(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t)) F(cuMemsetD16_v2, (CUdeviceptr, unsigned short, size_t)) \
    F(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t)) F(cuMemsetD2D8_v2, (CUdeviceptr, size_t, unsigned char, size_t, size_t)) \
    F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream)) \
    F(cuPointerGetAttribute, (void *, int, CUdeviceptr)) F(cuPointerSetAttribute, (const void *, int, CUdeviceptr)) \
    F(cuPointerGetAttributes, (unsigned, int *, void **, CUdeviceptr)) \
    F(cuStreamCreate, (CUstream *, unsigned)) F(cuStreamCreateWithPriority, (CUstream *, unsigned, int)) F(cuStreamDestroy_v2, (CUstream)) \
    F(cuStreamSynchronize, (CUstream)) F(cuStreamQuery, (CUstream)) F(cuStreamWaitEvent, (CUstream, CUevent, unsigned)) \
    F(cuStreamGetFlags, (CUstream, unsigned *)) F(cuStreamGetPriority, (CUstream, int *)) F(cuStreamGetCtx, (CUstream, CUcontext *)) \
    F(cuStreamGetId, (CUstream, unsigned long long *)) F(cuLaunchHostFunc, (CUstream, void (*)(void *), void *)) \
    F(cuEventCreate, (CUevent *, unsigned)) F(cuEventDestroy_v2, (CUevent)) F(cuEventRecord, (CUevent, CUstream)) \
    F(cuEventRecordWithFlags, (CUevent, CUstream, unsigned)) \
    F(cuEventQuery, (CUevent)) F(cuEventSynchronize, (CUevent)) F(cuEventElapsedTime, (float *, CUevent, CUevent)) \
    F(cuEventElapsedTime_v2, (float *, CUevent, CUevent)) \
    F(cuStreamBeginCapture_v2, (CUstream, int)) F(cuStreamEndCapture, (CUstream, CUgraph *)) F(cuStreamIsCapturing, (CUstream, int *)) \
    F(cuThreadExchangeStreamCaptureMode, (int *)) \
    F(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) F(cuMemAddressFree, (CUdeviceptr, size_t)) \
    F(cuMemCreate, (CUhandle *, size_t, const AllocationProp *, unsigned long long)) F(cuMemRelease, (CUhandle)) \
    F(cuMemMap, (CUdeviceptr, size_t, size_t, CUhandle, unsigned long long)) F(cuMemUnmap, (CUdeviceptr, size_t)) \
    F(cuMemSetAccess, (CUdeviceptr, size_t, const AccessDesc *, size_t)) \
    F(cuMemGetAccess, (unsigned long long *, const Location *, CUdeviceptr)) \
    F(cuMemGetAllocationGranularity, (size_t *, const AllocationProp *, int)) \
    F(cuMemGetAllocationPropertiesFromHandle, (AllocationProp *, CUhandle)) F(cuMemRetainAllocationHandle, (CUhandle *, void *)) \
    F(cuMemExportToShareableHandle, (void *, CUhandle, int, unsigned long long)) \
    F(cuMemImportFromShareableHandle, (CUhandle *, void *, int)) \
    F(cuMemGetHandleForAddressRange, (void *, CUdeviceptr, size_t, int, unsigned long long)) \
    F(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream)) F(cuMemFreeAsync, (CUdeviceptr, CUstream)) \
    F(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream)) \
    F(cuMemPoolCreate, (CUmemoryPool *, const PoolProps *)) F(cuMemPoolDestroy, (CUmemoryPool)) F(cuMemPoolTrimTo, (CUmemoryPool, size_t)) \
    F(cuMemPoolGetAttribute, (CUmemoryPool, int, void *)) F(cuMemPoolSetAttribute, (CUmemoryPool, int, void *)) \
    F(cuMemPoolSetAccess, (CUmemoryPool, const AccessDesc *, size_t)) F(cuMemPoolGetAccess, (int *, CUmemoryPool, Location *)) \
    F(cuMemPoolExportToShareableHandle, (void *, CUmemoryPool, int, unsigned long long)) F(cuMemPoolExportPointer, (void *, CUdeviceptr)) \
    F(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice)) F(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice)) \
    F(cuDeviceSetMemPool, (CUdevice, CUmemoryPool)) F(cuMemGetMemPool, (CUmemoryPool *, Location *, int)) \
    F(cuMemGetDefaultMemPool, (CUmemoryPool *, Location *, int)) F(cuMemSetMemPool, (Location *, int, CUmemoryPool)) \
    F(cuGraphCreate, (CUgraph *, unsigned)) F(cuGraphDestroy, (CUgraph)) F(cuGraphClone, (CUgraph *, CUgraph)) \
    F(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) F(cuGraphLaunch, (CUgraphExec, CUstream)) \
    F(cuGraphExecDestroy, (CUgraphExec)) F(cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *)) F(cuGraphNodeGetType, (CUgraphNode, int *)) \
    F(cuGraphAddMemAllocNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, AllocNodeParams *)) \
    F(cuGraphAddMemFreeNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr)) \
    F(cuGraphMemAllocNodeGetParams, (CUgraphNode, AllocNodeParams *)) F(cuGraphMemFreeNodeGetParams, (CUgraphNode, CUdeviceptr *)) \
    F(cuGraphAddMemsetNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const MemsetNodeParams *, CUcontext)) \
    F(cuGraphAddChildGraphNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph)) \
    F(cuGraphAddEmptyNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t)) \
    F(cuGraphDestroyNode, (CUgraphNode)) F(cuGraphUpload, (CUgraphExec, CUstream)) F(cuDeviceGraphMemTrim, (CUdevice)) \
    F(cuDeviceGetGraphMemAttribute, (CUdevice, int, void *)) F(cuDeviceSetGraphMemAttribute, (CUdevice, int, void *)) \
    F(cuIpcGetMemHandle, (IpcHandle *, CUdeviceptr)) F(cuIpcOpenMemHandle_v2, (CUdeviceptr *, IpcHandle, unsigned)) \
    F(cuIpcCloseMemHandle, (CUdeviceptr)) F(cuIpcGetEventHandle, (IpcHandle *, CUevent)) F(cuIpcOpenEventHandle, (CUevent *, IpcHandle)) \
    F(cuMemAdvise, (CUdeviceptr, size_t, int, CUdevice)) F(cuMemPrefetchAsync, (CUdeviceptr, size_t, CUdevice, CUstream)) \
    F(cuMemRangeGetAttribute, (void *, size_t, int, CUdeviceptr, size_t)) \
    F(cuStreamAttachMemAsync, (CUstream, CUdeviceptr, size_t, unsigned)) \
    F(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice)) F(cuDeviceGetP2PAttribute, (int *, int, CUdevice, CUdevice)) \
    F(cuCtxEnablePeerAccess, (CUcontext, unsigned)) F(cuCtxDisablePeerAccess, (CUcontext))
#define DECLARE(name, args) extern CUresult(*name) args;
FUNCTIONS(DECLARE)
#undef DECLARE

extern void *driver; /* dlopen handle of libcuda.so.1 */

/* One observation: `topic = value`. The topic is a format string of its own. */
void code(CUresult result, const char *topic, ...) __attribute__((format(printf, 2, 3)));
void number(long long value, const char *topic, ...) __attribute__((format(printf, 2, 3)));
void text(const char *value, const char *topic, ...) __attribute__((format(printf, 2, 3)));
const char *code_name(CUresult result);

/* cuInit, the primary context of device 0 retained and current. */
CUcontext start(void);
/* A non-blocking stream. */
CUstream side_stream(void);
CUevent plain_event(void);
size_t free_memory(void);

/* A slow item of about 60 ms on a stream of the current context; one at a time. */
void slow(CUstream stream);
int slow_pending(void);
/* Whether the event completes only after the slow item (1), before it (0). Waits for both at most 2 s. */
int after_slow(CUevent event);
/* Runs an expression beside a slow item on `stream` and says whether it came back only after that item. */
#define WAITS(stream, topic, call)                                                                                   \
    do {                                                                                                             \
        slow(stream);                                                                                                \
        int before_ = slow_pending();                                                                                \
        CUresult result_ = (call);                                                                                   \
        verdict(topic, result_, before_, slow_pending());                                                            \
        cuCtxSynchronize();                                                                                          \
    } while (0)
void verdict(const char *topic, CUresult result, int before, int after);

typedef void Section(void);
Section section_procaddress, section_context, section_nocontext, section_alloc, section_kinds, section_copy, section_attributes,
    section_order, section_ctxevent, section_vmm, section_pool, section_capture, section_graph, section_ipc, section_questions;

/* Every attribute of an address. */
void attributes_of(const char *kind, CUdeviceptr p, CUcontext context);
/* What functions of other families say of an address, for `bytes` bytes from there on. */
void questions_of(const char *where, CUdeviceptr p, size_t bytes);
#endif

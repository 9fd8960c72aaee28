/* Which exported function cuGetProcAddress answers for a name, per version and flag. */
#define _GNU_SOURCE
#include "conformance.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef CUresult V1(const char *, void **, int, uint64_t);
typedef CUresult V2(const char *, void **, int, uint64_t, int *);

static const char *const names[] = {
    "cuArray3DCreate", "cuArray3DGetDescriptor", "cuArrayCreate", "cuArrayDestroy", "cuArrayGetDescriptor",
    "cuArrayGetMemoryRequirements", "cuArrayGetPlane", "cuArrayGetSparseProperties", "cuCtxCreate", "cuCtxDestroy",
    "cuCtxDisablePeerAccess", "cuCtxEnablePeerAccess", "cuCtxGetApiVersion", "cuCtxGetCacheConfig", "cuCtxGetCurrent",
    "cuCtxGetDevice", "cuCtxGetExecAffinity", "cuCtxGetFlags", "cuCtxGetId", "cuCtxGetLimit",
    "cuCtxGetStreamPriorityRange", "cuCtxPopCurrent", "cuCtxPushCurrent", "cuCtxRecordEvent",
    "cuCtxResetPersistingL2Cache", "cuCtxSetCacheConfig", "cuCtxSetCurrent", "cuCtxSetFlags", "cuCtxSetLimit",
    "cuCtxSynchronize", "cuCtxWaitEvent", "cuDestroyExternalMemory", "cuDestroyExternalSemaphore", "cuDeviceCanAccessPeer",
    "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetByPCIBusId", "cuDeviceGetCliqueCount", "cuDeviceGetCliqueInfo",
    "cuDeviceGetCount", "cuDeviceGetDefaultMemPool", "cuDeviceGetExecAffinitySupport", "cuDeviceGetGraphMemAttribute",
    "cuDeviceGetHostAtomicCapabilities", "cuDeviceGetLuid", "cuDeviceGetMemPool", "cuDeviceGetName",
    "cuDeviceGetNvSciSyncAttributes", "cuDeviceGetP2PAtomicCapabilities", "cuDeviceGetP2PAttribute", "cuDeviceGetPCIBusId",
    "cuDeviceGetUuid", "cuDeviceGraphMemTrim", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxSetFlags",
    "cuDeviceRegisterAsyncNotification", "cuDeviceSetGraphMemAttribute", "cuDeviceSetMemPool", "cuDeviceTotalMem",
    "cuDeviceUnregisterAsyncNotification", "cuDriverGetVersion", "cuEventCreate", "cuEventDestroy", "cuEventElapsedTime",
    "cuEventQuery", "cuEventRecord", "cuEventRecordWithFlags", "cuEventSynchronize", "cuExternalMemoryGetMappedBuffer",
    "cuExternalMemoryGetMappedMipmappedArray", "cuFabricCpyBatchAsync", "cuFlushGPUDirectRDMAWrites", "cuFuncGetAttribute",
    "cuFuncGetModule", "cuFuncGetParamCount", "cuFuncGetParamInfo", "cuFuncIsLoaded", "cuFuncLoad", "cuFuncSetAttribute",
    "cuFuncSetCacheConfig", "cuGetErrorName", "cuGetErrorString", "cuGetExportTable", "cuGraphAddBatchMemOpNode",
    "cuGraphAddChildGraphNode", "cuGraphAddDependencies", "cuGraphAddEmptyNode", "cuGraphAddEventRecordNode",
    "cuGraphAddEventWaitNode", "cuGraphAddExternalSemaphoresSignalNode", "cuGraphAddExternalSemaphoresWaitNode",
    "cuGraphAddHostNode", "cuGraphAddKernelNode", "cuGraphAddMemAllocNode", "cuGraphAddMemFreeNode",
    "cuGraphAddMemcpyNode", "cuGraphAddMemsetNode", "cuGraphAddNode", "cuGraphBatchMemOpNodeGetParams",
    "cuGraphBatchMemOpNodeSetParams", "cuGraphChildGraphNodeGetGraph", "cuGraphClone", "cuGraphConditionalHandleCreate",
    "cuGraphCreate", "cuGraphDebugDotPrint", "cuGraphDestroy", "cuGraphDestroyNode", "cuGraphEventRecordNodeGetEvent",
    "cuGraphEventRecordNodeSetEvent", "cuGraphEventWaitNodeGetEvent", "cuGraphEventWaitNodeSetEvent",
    "cuGraphExecBatchMemOpNodeSetParams", "cuGraphExecChildGraphNodeSetParams", "cuGraphExecDestroy",
    "cuGraphExecEventRecordNodeSetEvent", "cuGraphExecEventWaitNodeSetEvent",
    "cuGraphExecExternalSemaphoresSignalNodeSetParams", "cuGraphExecExternalSemaphoresWaitNodeSetParams",
    "cuGraphExecGetFlags", "cuGraphExecGetId", "cuGraphExecHostNodeSetParams", "cuGraphExecKernelNodeSetParams",
    "cuGraphExecMemcpyNodeSetParams", "cuGraphExecMemsetNodeSetParams", "cuGraphExecNodeSetParams", "cuGraphExecUpdate",
    "cuGraphExternalSemaphoresSignalNodeGetParams", "cuGraphExternalSemaphoresSignalNodeSetParams",
    "cuGraphExternalSemaphoresWaitNodeGetParams", "cuGraphExternalSemaphoresWaitNodeSetParams", "cuGraphGetEdges",
    "cuGraphGetId", "cuGraphGetNodes", "cuGraphGetRootNodes", "cuGraphHostNodeGetParams", "cuGraphHostNodeSetParams",
    "cuGraphInstantiate", "cuGraphInstantiateWithParams", "cuGraphKernelNodeCopyAttributes",
    "cuGraphKernelNodeGetAttribute", "cuGraphKernelNodeGetParams", "cuGraphKernelNodeSetAttribute",
    "cuGraphKernelNodeSetParams", "cuGraphLaunch", "cuGraphMemAllocNodeGetParams", "cuGraphMemFreeNodeGetParams",
    "cuGraphMemcpyNodeGetParams", "cuGraphMemcpyNodeSetParams", "cuGraphMemsetNodeGetParams", "cuGraphMemsetNodeSetParams",
    "cuGraphNodeFindInClone", "cuGraphNodeGetContainingGraph", "cuGraphNodeGetDependencies",
    "cuGraphNodeGetDependentNodes", "cuGraphNodeGetEnabled", "cuGraphNodeGetLocalId", "cuGraphNodeGetParams",
    "cuGraphNodeGetToolsId", "cuGraphNodeGetType", "cuGraphNodeSetEnabled", "cuGraphNodeSetParams",
    "cuGraphRemoveDependencies", "cuGraphUpload", "cuImportExternalMemory", "cuImportExternalSemaphore", "cuInit",
    "cuIpcCloseMemHandle", "cuIpcGetEventHandle", "cuIpcGetMemHandle", "cuIpcOpenEventHandle", "cuIpcOpenMemHandle",
    "cuLaunchCooperativeKernel", "cuLaunchHostFunc", "cuLaunchKernel", "cuLaunchKernelEx", "cuLogicalEndpointAddDevice",
    "cuLogicalEndpointBindAddr", "cuLogicalEndpointBindMem", "cuLogicalEndpointCreate", "cuLogicalEndpointDestroy",
    "cuLogicalEndpointExport", "cuLogicalEndpointGetLimits", "cuLogicalEndpointIdRelease", "cuLogicalEndpointIdReserve",
    "cuLogicalEndpointImport", "cuLogicalEndpointQuery", "cuLogicalEndpointUnbind", "cuMemAddressFree",
    "cuMemAddressReserve", "cuMemAdvise", "cuMemAlloc", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemAllocHost",
    "cuMemAllocManaged", "cuMemAllocPitch", "cuMemBatchDecompressAsync", "cuMemCreate",
    "cuMemDiscardAndPrefetchBatchAsync", "cuMemDiscardBatchAsync", "cuMemExportToShareableHandle", "cuMemFree",
    "cuMemFreeAsync", "cuMemFreeHost", "cuMemGetAccess", "cuMemGetAddressRange", "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle", "cuMemGetDefaultMemPool", "cuMemGetHandleForAddressRange", "cuMemGetInfo",
    "cuMemGetMemPool", "cuMemHostAlloc", "cuMemHostGetDevicePointer", "cuMemHostGetFlags", "cuMemHostRegister",
    "cuMemHostUnregister", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemMapArrayAsync", "cuMemPoolCreate",
    "cuMemPoolDestroy", "cuMemPoolExportPointer", "cuMemPoolExportToShareableHandle", "cuMemPoolGetAccess",
    "cuMemPoolGetAttribute", "cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer", "cuMemPoolSetAccess",
    "cuMemPoolSetAttribute", "cuMemPoolTrimTo", "cuMemPrefetchAsync", "cuMemPrefetchBatchAsync", "cuMemRangeGetAttribute",
    "cuMemRangeGetAttributes", "cuMemRelease", "cuMemRetainAllocationHandle", "cuMemSetAccess", "cuMemSetMemPool",
    "cuMemUnmap", "cuMemcpy", "cuMemcpy2D", "cuMemcpy2DAsync", "cuMemcpy2DUnaligned", "cuMemcpy3D", "cuMemcpy3DAsync",
    "cuMemcpy3DBatchAsync", "cuMemcpy3DPeer", "cuMemcpy3DPeerAsync", "cuMemcpy3DWithAttributesAsync", "cuMemcpyAsync",
    "cuMemcpyAtoA", "cuMemcpyAtoD", "cuMemcpyAtoH", "cuMemcpyAtoHAsync", "cuMemcpyBatchAsync", "cuMemcpyDtoA",
    "cuMemcpyDtoD", "cuMemcpyDtoDAsync", "cuMemcpyDtoH", "cuMemcpyDtoHAsync", "cuMemcpyHtoA", "cuMemcpyHtoAAsync",
    "cuMemcpyHtoD", "cuMemcpyHtoDAsync", "cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemcpyWithAttributesAsync", "cuMemsetD16",
    "cuMemsetD16Async", "cuMemsetD2D16", "cuMemsetD2D16Async", "cuMemsetD2D32", "cuMemsetD2D32Async", "cuMemsetD2D8",
    "cuMemsetD2D8Async", "cuMemsetD32", "cuMemsetD32Async", "cuMemsetD8", "cuMemsetD8Async", "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy", "cuMipmappedArrayGetLevel", "cuMipmappedArrayGetMemoryRequirements",
    "cuMipmappedArrayGetSparseProperties", "cuModuleGetFunction", "cuModuleGetFunctionCount", "cuModuleGetGlobal",
    "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleUnload",
    "cuMulticastAddDevice", "cuMulticastBindAddr", "cuMulticastBindMem", "cuMulticastCreate", "cuMulticastGetGranularity",
    "cuMulticastUnbind", "cuPointerGetAttribute", "cuPointerGetAttributes", "cuPointerSetAttribute",
    "cuSignalExternalSemaphoresAsync", "cuStreamAddCallback", "cuStreamAttachMemAsync", "cuStreamBatchMemOp",
    "cuStreamBeginCapture", "cuStreamBeginCaptureToGraph", "cuStreamBeginRecaptureToGraph", "cuStreamCopyAttributes",
    "cuStreamCreate", "cuStreamCreateWithPriority", "cuStreamDestroy", "cuStreamEndCapture", "cuStreamGetAttribute",
    "cuStreamGetCaptureInfo", "cuStreamGetCtx", "cuStreamGetDevice", "cuStreamGetFlags", "cuStreamGetId",
    "cuStreamGetPriority", "cuStreamIsCapturing", "cuStreamQuery", "cuStreamSetAttribute", "cuStreamSynchronize",
    "cuStreamUpdateCaptureDependencies", "cuStreamWaitEvent", "cuStreamWaitValue32", "cuStreamWaitValue64",
    "cuStreamWriteValue32", "cuStreamWriteValue64", "cuThreadExchangeStreamCaptureMode", "cuWaitExternalSemaphoresAsync",
};
/* The newest version first asked; every step from there down at which the answer changes is printed. */
static const int versions[] = {2000,  2010,  2020,  2030,  3000,  3010,  3020,  4000,  4010,  4020,  5000,  5050,
                               6000,  6050,  7000,  7050,  8000,  9000,  9010,  9020,  10000, 10010, 10020, 11000,
                               11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010, 12020, 12030,
                               12040, 12050, 12060, 12070, 12080, 12090, 13000};

/* The exported names, joined by '|', that have this address. */
static const char *exports_of(void *address, const char *name, char *out, size_t size) {
    static const char *const suffixes[] = {"",          "_v2",      "_v3",      "_v4",      "_ptsz",    "_v2_ptsz",
                                           "_v3_ptsz", "_ptds",    "_v2_ptds", "_v3_ptds"};
    out[0] = 0;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char symbol[128];
        snprintf(symbol, sizeof symbol, "%s%s", name, suffixes[i]);
        if (dlsym(driver, symbol) != address) continue;
        size_t used = strlen(out);
        snprintf(out + used, size - used, "%s%s", used ? "|" : "", suffixes[i][0] ? suffixes[i] : "plain");
    }
    if (!out[0]) snprintf(out, size, "no export");
    return out;
}

static void answer(V2 *get, const char *name, int version, uint64_t flags, char *out, size_t size) {
    void *address = NULL;
    int status = -1;
    CUresult result = get(name, &address, version, flags, &status);
    if (result == 0 && address)
        exports_of(address, name, out, size);
    else
        snprintf(out, size, "code %d status %d", result, status);
}

static void sweep(V2 *get, const char *name, uint64_t flags) {
    char all[2048] = "", last[256] = "", now[256];
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        answer(get, name, versions[i], flags, now, sizeof now);
        if (!strcmp(now, last)) continue;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%d: %s", used ? "; " : "", versions[i], now);
        memcpy(last, now, sizeof last);
    }
    text(all, "procaddress.flags%d.%s", (int)flags, name);
}

static void odd_arguments(V1 *v1, V2 *v2) {
    void *address = (void *)1;
    int status = -1;
    code(v2("cuNoSuchThing", &address, 13000, 0, &status), "procaddress.v2.unknown.code");
    number(status, "procaddress.v2.unknown.status");
    text(address == NULL ? "null" : address == (void *)1 ? "untouched" : "other", "procaddress.v2.unknown.pointer");
    status = -1, address = (void *)1;
    code(v2("cuMemAlloc", &address, 1000, 0, &status), "procaddress.v2.too_old.code");
    number(status, "procaddress.v2.too_old.status");
    text(address == NULL ? "null" : address == (void *)1 ? "untouched" : "other", "procaddress.v2.too_old.pointer");
    address = NULL;
    code(v2("cuMemAlloc", &address, 12000, 0, NULL), "procaddress.v2.null_status.code");
    number(address == dlsym(driver, "cuMemAlloc_v2"), "procaddress.v2.null_status.is_v2");
    status = -1;
    /* A null name crashes the real driver, so neither null is tried. */
    static const int flags[] = {3, 4, 8};
    for (int i = 0; i < 3; i++) {
        status = -1, address = NULL;
        code(v2("cuMemcpyHtoDAsync", &address, 12000, (uint64_t)flags[i], &status), "procaddress.v2.flags%d.code", flags[i]);
        number(status, "procaddress.v2.flags%d.status", flags[i]);
    }
    static const char *const odd[] = {"cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2_ptsz", "cumemalloc", "", "cuGetProcAddress_v2", "cuCtxCreate_v4"};
    for (int i = 0; i < 6; i++) {
        char out[256];
        answer(v2, odd[i], 13000, 0, out, sizeof out);
        text(out, "procaddress.v2.odd_name.%s", odd[i]);
    }
    static const int odd_versions[] = {0, -1, 1, 13050, 99000};
    for (int i = 0; i < 5; i++) {
        char out[256];
        answer(v2, "cuCtxCreate", odd_versions[i], 0, out, sizeof out);
        text(out, "procaddress.v2.version_%d.cuCtxCreate", odd_versions[i]);
    }
    address = (void *)1;
    code(v1("cuNoSuchThing", &address, 12000, 0), "procaddress.v1.unknown.code");
    text(address == NULL ? "null" : address == (void *)1 ? "untouched" : "other", "procaddress.v1.unknown.pointer");
    code(v1("cuMemAlloc", &address, 1000, 0), "procaddress.v1.too_old.code");
    code(v1("cuMemAlloc", &address, 12000, 0), "procaddress.v1.known.code");
    number(address == dlsym(driver, "cuMemAlloc_v2"), "procaddress.v1.known.is_v2");
    code(v1("cuMemAlloc", &address, 3010, 0), "procaddress.v1.old.code");
    number(address == dlsym(driver, "cuMemAlloc"), "procaddress.v1.old.is_plain");
    code(v1("cuMemsetD8Async", &address, 12000, 2), "procaddress.v1.ptsz.code");
    number(address == dlsym(driver, "cuMemsetD8Async_ptsz"), "procaddress.v1.ptsz.is_ptsz");
}

/* cuGetProcAddress asked for through itself: which export, or which ABI, comes back. */
static void through_itself(V2 *v2) {
    static const int asked[] = {11020, 11030, 11080, 12000, 13000};
    for (int i = 0; i < 5; i++)
        for (uint64_t flags = 0; flags < 3; flags++) {
            void *address = NULL;
            int status = -1;
            CUresult result = v2("cuGetProcAddress", &address, asked[i], flags, &status);
            const char *which = result                                              ? code_name(result)
                                : address == dlsym(driver, "cuGetProcAddress")      ? "cuGetProcAddress"
                                : address == dlsym(driver, "cuGetProcAddress_v2")   ? "cuGetProcAddress_v2"
                                : address                                           ? "no export"
                                                                                    : "null";
            text(which, "procaddress.itself.version_%d.flags%d", asked[i], (int)flags);
            if (result || !address || asked[i] < 12000) continue;
            void *inner = NULL;
            status = -1;
            code(((V2 *)address)("cuMemAlloc", &inner, 12000, 0, &status), "procaddress.itself.version_%d.flags%d.answers_as_v2", asked[i], (int)flags);
            number(status, "procaddress.itself.version_%d.flags%d.status", asked[i], (int)flags);
            number(inner == dlsym(driver, "cuMemAlloc_v2"), "procaddress.itself.version_%d.flags%d.same_pointer", asked[i], (int)flags);
            /* Flags 0 through a function that was itself fetched for per-thread streams. */
            inner = NULL;
            ((V2 *)address)("cuMemsetD8Async", &inner, 12000, 0, &status);
            number(inner == dlsym(driver, "cuMemsetD8Async"), "procaddress.itself.version_%d.flags%d.flags0_is_legacy", asked[i], (int)flags);
        }
}

void section_procaddress(void) {
    V1 *v1 = (V1 *)dlsym(driver, "cuGetProcAddress");
    V2 *v2 = (V2 *)dlsym(driver, "cuGetProcAddress_v2");
    number(v1 != NULL, "procaddress.export.v1");
    number(v2 != NULL, "procaddress.export.v2");
    if (!v1 || !v2) return;
    number((void *)v1 == (void *)v2, "procaddress.export.v1_is_v2");
    void *address = NULL;
    int status = -1;
    code(v2("cuInit", &address, 12000, 0, &status), "procaddress.before_init.code");
    number(address == dlsym(driver, "cuInit"), "procaddress.before_init.same");
    start();
    odd_arguments(v1, v2);
    through_itself(v2);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sweep(v2, names[i], 0);
        sweep(v2, names[i], 2);
    }
    char one[256], zero[256];
    int same = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        answer(v2, names[i], 13000, 0, zero, sizeof zero);
        answer(v2, names[i], 13000, 1, one, sizeof one);
        if (strcmp(one, zero)) text(one, "procaddress.flags1_differs.%s", names[i]), same = 0;
    }
    number(same, "procaddress.flags1_equals_flags0");
}

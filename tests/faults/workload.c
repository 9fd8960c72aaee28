/* One round of everything that a program may ask of the driver, some 20 ms long, for the fault sweep (tests/faults/sweep.py).

   Each driver call that gives anything but what it gives on a driver without faults, or in which a fault struck, is one
   line: `call NAME RESULT STRUCK ATTEMPT FINE`. A call that fails is made again, at most twice: whoever asked twice must
   have been answered. Then come `end` with what became of the memory, and with COUNT=1 the number of calls of each function.
   Arguments: `alone`, or `together` for a second thread that allocates and frees all the while. */
#include "../programs/streams.h"
#include <stdatomic.h>

#define L(x) ((long)(x))
#define C(name, ...) called(#name, SUCCESS, (long[14]){__VA_ARGS__})
#define EXPECT(result, name, ...) called(#name, result, (long[14]){__VA_ARGS__})
/* For what some pools and drivers can't answer. */
#define MAY(name, ...) called(#name, ANY_RESULT, (long[14]){__VA_ARGS__})
/* A structure of 64 bytes that is passed by value: it comes behind the arguments that have registers. */
#define ON_STACK(words) (words)[0], (words)[1], (words)[2], (words)[3], (words)[4], (words)[5], (words)[6], (words)[7]

enum { MOST = 96, ANY_RESULT = -1 };
static const CUstream anywhere = NULL;
typedef long Function(long, long, long, long, long, long, long, long, long, long, long, long, long, long);
typedef enum { DEVICE, ASYNC, FROM_POOL } Family;
typedef struct { CUdeviceptr address; size_t bytes; unsigned value; } Block;
/* CUgraphNodeParams. */
typedef struct { unsigned kind, reserved[3]; union { AllocNodeParams allocates; CUdeviceptr address; long words[29]; }; long more; } NodeParams;
/* CUDA_EXTERNAL_MEMORY_HANDLE_DESC. */
typedef struct { unsigned kind; union { int descriptor; long words[2]; }; unsigned long long size; unsigned flags, reserved[16]; } ExternalMemory;

static uint64_t (*hits)(int);
static void *library;
static Block live[MOST];
static unsigned values = 1;
static long overlaps, spoiled;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int over;
static CUcontext primary[2];
/* Handles of another process's blocks. */
static long theirs[2][8];
static int devices, together;

static long called(const char *name, long expected, const long *a) {
    Function *function = (Function *)dlsym(library, name);
    if (!function) return MISSING;
    for (int attempt = 0;; attempt++) {
        uint64_t before = hits(0);
        long result = (int)function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]);
        int struck = hits(0) != before;
        int fine = expected == ANY_RESULT ? !struck || result == SUCCESS : result == expected;
        if (!fine || struck)
            printf("call %s %ld %d %d %d\n", name, result, struck, attempt, fine);
        if (fine || attempt == 2) return result;
    }
}

/* Contents are read and written by the host: device memory is the host's here, and no fault can strike that. */
static void put(const Block *block) {
    unsigned *first = (unsigned *)block->address, *last = (unsigned *)(block->address + (block->bytes - 4) / 4 * 4);
    *first = *last = block->value;
}

static int is_right(const Block *block) {
    unsigned *first = (unsigned *)block->address, *last = (unsigned *)(block->address + (block->bytes - 4) / 4 * 4);
    return *first == block->value && *last == block->value;
}

static Block *taken(CUdeviceptr address, size_t bytes) {
    Block *found = NULL;
    pthread_mutex_lock(&table);
    for (int i = 0; i < MOST; i++) {
        Block *other = &live[i];
        if (!other->address && !found) found = other;
        if (other->address && address < other->address + other->bytes && other->address < address + bytes) {
            printf("overlap %#llx of %zu bytes, %#llx of %zu bytes\n", address, bytes, other->address, other->bytes);
            overlaps++;
        }
    }
    if (found) *found = (Block){address, bytes, values++}, put(found);
    pthread_mutex_unlock(&table);
    if (!found) {
        printf("too many blocks\n");
        exit(3);
    }
    return found;
}

static Block *take(Family family, size_t bytes, CUstream stream, CUmemoryPool pool) {
    CUdeviceptr address = 0;
    long result = family == DEVICE  ? C(cuMemAlloc_v2, L(&address), L(bytes))
                  : family == ASYNC ? C(cuMemAllocAsync, L(&address), L(bytes), L(stream))
                                    : C(cuMemAllocFromPoolAsync, L(&address), L(bytes), L(pool), L(stream));
    if (result != SUCCESS) return NULL;
    Block *block = taken(address, bytes);
    work(stream, address, bytes, 1, 20000);
    return block;
}

static void give(Block *block, CUstream stream) {
    if (!block) return;
    Block gone = *block;
    if (!is_right(&gone)) {
        printf("spoiled %#llx of %zu bytes\n", gone.address, gone.bytes);
        spoiled++;
    }
    if (stream) work(stream, gone.address, gone.bytes, 0, 10000);
    /* From here on another thread may have the address. */
    pthread_mutex_lock(&table);
    block->address = 0;
    pthread_mutex_unlock(&table);
    if (stream) C(cuMemFreeAsync, L(gone.address), L(stream));
    else C(cuMemFree_v2, L(gone.address));
}

static void check_all(void) {
    pthread_mutex_lock(&table);
    for (int i = 0; i < MOST; i++)
        if (live[i].address && !is_right(&live[i])) {
            printf("spoiled %#llx of %zu bytes\n", live[i].address, live[i].bytes);
            spoiled++;
        }
    pthread_mutex_unlock(&table);
}

static void device_memory(CUstream stream) {
    static const size_t sizes[] = {100, 512, 5000, 70000, MIB, 3 * MIB + 1, 20 * MIB, 6 * MIB};
    Block *block[8];
    size_t free_now = 0, total = 0, size = 0;
    CUdeviceptr base = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++) block[i] = take(DEVICE, sizes[i], stream, NULL);
        if (block[4]) C(cuMemGetAddressRange_v2, L(&base), L(&size), L(block[4]->address + 8));
        C(cuMemGetInfo_v2, L(&free_now), L(&total));
        for (int i = 0; i < 8; i++) {
            if (i == 3) C(cuStreamSynchronize, L(stream));
            /* Those of odd numbers as cudaFreeAsync would. */
            give(block[i], i % 2 ? stream : anywhere);
        }
        check_all();
    }
    C(cuCtxSynchronize, 0);
}

static void attributes(CUdeviceptr address, int has_handle) {
    uint64_t value[4] = {0};
    int names[] = {1, 2, 9}, on = 1;
    void *data[] = {&value[0], &value[1], &value[2]};
    char handle[64];
    CUhandle memory = 0;
    C(cuPointerGetAttribute, L(&value[3]), 2, L(address));
    C(cuPointerGetAttributes, 3, L(names), L(data), L(address));
    /* Stream-ordered memory in pages cannot have it. */
    if (has_handle) C(cuPointerSetAttribute, L(&on), 6, L(address));
    else MAY(cuPointerSetAttribute, L(&on), 6, L(address));
    if (has_handle) MAY(cuIpcGetMemHandle, L(handle), L(address));
    if (MAY(cuMemRetainAllocationHandle, L(&memory), L(address)) == SUCCESS) C(cuMemRelease, L(memory));
    MAY(cuMemGetHandleForAddressRange, L(&value[3]), L(address), L(2 * MIB), 1, 0);
}

/* A block that nothing but attributes is asked of: some of these fail on every driver, by policy. */
static void asked_about(CUstream stream) {
    Block *block[2] = {take(DEVICE, 4 * MIB, stream, NULL), take(ASYNC, 4 * MIB, stream, NULL)};
    for (int i = 0; i < 2; i++)
        if (block[i]) attributes(block[i]->address, i == 0);
    give(block[0], anywhere);
    give(block[1], stream);
}

static void ordered_memory(CUstream a, CUstream b, CUmemoryPool pool) {
    Block *block[10];
    CUevent event = NULL;
    unsigned long long threshold = 8 * MIB, figure = 0;
    CUmemoryPool made = NULL, current = NULL;
    PoolProps props = {.type = 1, .location = {1, 0}};
    AccessDesc access = {{1, 1}, 3};
    Location here = {1, 0};
    C(cuMemPoolSetAttribute, L(pool), RELEASE_THRESHOLD, L(&threshold));
    C(cuMemPoolCreate, L(&made), L(&props));
    C(cuEventCreate, L(&event), 2);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++) block[i] = take(ASYNC, (size_t)1000 << 2 * i, i & 1 ? a : b, NULL);
        for (int i = 8; i < 10; i++) block[i] = take(FROM_POOL, (size_t)(i - 7) * 3 * MIB, a, made);
        C(cuEventRecord, L(event), L(a));
        C(cuStreamWaitEvent, L(b), L(event), 0);
        C(cuEventRecordWithFlags, L(event), L(b), 0);
        C(cuStreamWaitEvent, L(a), L(event), 0);
        for (int i = 0; i < 10; i++) {
            if (i % 5 == 4) C(cuCtxSynchronize, 0);
            give(block[i], i % 5 == 4 ? anywhere : i & 2 ? a : b);
        }
        C(cuMemPoolGetAttribute, L(pool), RESERVED_NOW, L(&figure));
        if (round == 1) C(cuStreamSynchronize, L(a));
        if (round == 1) C(cuStreamQuery, L(a));
        if (round == 1) C(cuMemPoolTrimTo, L(pool), L(MIB));
        if (round == 1) C(cuEventSynchronize, L(event));
        check_all();
    }
    /* The thread's own default stream, by the functions that mean it. */
    CUdeviceptr address = 0;
    if (C(cuMemAllocAsync_ptsz, L(&address), 5000, 0) == SUCCESS) {
        Block *own = taken(address, 5000);
        pthread_mutex_lock(&table);
        own->address = 0;
        pthread_mutex_unlock(&table);
        C(cuMemFreeAsync_ptsz, L(address), 0);
    }
    if (made && C(cuMemAllocFromPoolAsync_ptsz, L(&address), 5000, L(made), 0) == SUCCESS) C(cuMemFreeAsync_ptsz, L(address), 0);
    C(cuEventRecord_ptsz, L(event), 0);
    C(cuEventRecordWithFlags_ptsz, L(event), 0, 0);
    C(cuStreamSynchronize_ptsz, 0);
    if (devices > 1) C(cuMemPoolSetAccess, L(made), L(&access), 1);
    C(cuDeviceSetMemPool, 0, L(made));
    give(take(ASYNC, 300000, a, NULL), a);
    C(cuMemSetMemPool, L(&here), 1, L(pool));
    C(cuDeviceGetMemPool, L(&current), 0);
    C(cuMemPoolDestroy, L(made));
    C(cuCtxSynchronize, 0);
}

/* Graphs: captured, built by hand, launched, updated; memory that others free meanwhile. */
static void graphs(CUstream stream, CUstream other) {
    CUgraph graph = NULL, clone = NULL, whole = NULL;
    CUgraphExec exec = NULL, again = NULL;
    CUgraphNode node = NULL;
    CUdeviceptr inner = 0, pooled = 0;
    CUmemoryPool pool = NULL;
    C(cuDeviceGetDefaultMemPool, L(&pool), 0);
    Block *outer = take(DEVICE, 2 * MIB, stream, NULL), *aside = take(ASYNC, 2 * MIB, other, NULL);
    C(cuStreamSynchronize, L(stream));
    for (int kind = 0; kind < 3; kind++) {
        int to_graph = kind == 2;
        /* In the global mode other threads may not allocate. */
        if (kind == 1 && together) continue;
        long begun = kind == 0   ? C(cuStreamBeginCapture_v2, L(stream), 2)
                     : kind == 1 ? C(cuStreamBeginCapture, L(stream))
                     : C(cuGraphCreate, L(&graph), 0) ? -1 : C(cuStreamBeginCaptureToGraph, L(stream), L(graph), 0, 0, 0, 2);
        if (begun != SUCCESS) continue;
        if (!to_graph && C(cuMemAllocAsync, L(&inner), 70000, L(stream)) == SUCCESS) {
            work(stream, inner, 70000, 1, 1000);
            C(cuMemFreeAsync, L(inner), L(stream));
        }
        if (!to_graph && C(cuMemAllocFromPoolAsync, L(&pooled), 70000, L(pool), L(stream)) == SUCCESS)
            C(cuMemFreeAsync, L(pooled), L(stream));
        if (outer) work(stream, outer->address, outer->bytes, 0, 1000);
        if (kind == 0) {
            give(take(DEVICE, 3 * MIB, other, NULL), anywhere);
            give(take(ASYNC, 3 * MIB, other, NULL), other);
        }
        graph = NULL;
        if (C(cuStreamEndCapture, L(stream), L(&graph)) != SUCCESS || !graph) continue;
        if (kind == 0) C(cuGraphInstantiateWithFlags, L(&exec), L(graph), 0);
        if (kind == 1) C(cuGraphInstantiate_v2, L(&exec), L(graph), 0, 0, 0);
        if (kind == 2) {
            struct { uint64_t flags; CUstream upload; CUgraphNode error; int result; } params = {0};
            C(cuGraphInstantiateWithParams, L(&exec), L(graph), L(&params));
            C(cuGraphClone, L(&clone), L(graph));
            if (!C(cuGraphCreate, L(&whole), 0)) C(cuGraphAddChildGraphNode, L(&node), L(whole), 0, 0, L(graph));
            if (whole) C(cuGraphInstantiate, L(&again), L(whole), 0, 0, 0);
            if (again) C(cuGraphExecChildGraphNodeSetParams, L(again), L(node), L(graph));
            if (again) C(cuGraphExecDestroy, L(again));
            if (whole) C(cuGraphDestroy, L(whole));
            struct { int result; CUgraphNode node, from; } info = {0};
            if (exec && clone) C(cuGraphExecUpdate_v2, L(exec), L(clone), L(&info));
            if (clone) C(cuGraphDestroy, L(clone));
        }
        C(cuGraphDestroy, L(graph));
        for (int i = 0; exec && i < 2; i++) {
            C(cuGraphUpload, L(exec), L(stream));
            C(cuGraphLaunch, L(exec), L(stream));
            give(take(ASYNC, 3 * MIB, other, NULL), other);
        }
        C(cuStreamSynchronize, L(stream));
        if (exec) C(cuGraphExecDestroy, L(exec));
        exec = NULL;
    }
    AllocNodeParams params = {.pool = {.type = 1, .location = {1, 0}}, .bytes = 100000};
    if (C(cuGraphCreate, L(&graph), 0) == SUCCESS) {
        CUgraphNode free_node = NULL;
        if (C(cuGraphAddMemAllocNode, L(&node), L(graph), 0, 0, L(&params)) == SUCCESS)
            C(cuGraphAddMemFreeNode, L(&free_node), L(graph), L(&node), 1, L(params.pointer));
        C(cuGraphDestroy, L(graph));
    }
    /* The same by the functions for nodes of any type: 10 allocates, 11 frees. */
    NodeParams any = {.kind = 10, .allocates = {.pool = {.type = 1, .location = {1, 0}}, .bytes = 100000}};
    if (C(cuGraphCreate, L(&graph), 0) == SUCCESS) {
        if (C(cuGraphAddNode, L(&node), L(graph), 0, 0, L(&any)) == SUCCESS) {
            CUgraphNode free_node = NULL;
            NodeParams frees = {.kind = 11, .address = any.allocates.pointer};
            C(cuGraphAddNode_v2, L(&free_node), L(graph), L(&node), 0, 1, L(&frees));
        }
        C(cuGraphDestroy, L(graph));
    }
    give(outer, anywhere);
    give(aside, other);
    C(cuCtxSynchronize, 0);
    C(cuDeviceGraphMemTrim, 0);
}

/* The older names, and those of the thread's own default stream. */
static void variants(void) {
    CUcontext made = NULL, popped = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUstream stream = NULL;
    CUdeviceptr inner = 0;
    CUmemoryPool pool = NULL;
    int status = 0, version = 0;
    size_t bytes = 0;
    char name[64];
    void *found = NULL;
    struct { uint64_t flags; CUstream upload; CUgraphNode error; int result; } params = {0};
    C(cuDeviceGetDefaultMemPool, L(&pool), 0);
    C(cuDriverGetVersion, L(&version));
    C(cuDeviceGet, L(&status), 0);
    C(cuDeviceGetName, L(name), sizeof name, 0);
    C(cuDeviceTotalMem_v2, L(&bytes), 0);
    C(cuGetProcAddress, L("cuMemAlloc"), L(&found), 11030, 0);
    C(cuGetProcAddress_v2, L("cuMemAlloc"), L(&found), 12000, 0, L(&status));
    for (int kind = 0; kind < 3; kind++) {
        long begun = kind == 0   ? C(cuStreamBeginCapture_v2_ptsz, 0, 2)
                     : kind == 1 ? (together ? -1 : C(cuStreamBeginCapture_ptsz, 0))
                     : C(cuGraphCreate, L(&graph), 0) ? -1 : C(cuStreamBeginCaptureToGraph_ptsz, 0, L(graph), 0, 0, 0, 2);
        if (begun != SUCCESS) continue;
        C(cuStreamIsCapturing_ptsz, 0, L(&status));
        if (kind == 0 && C(cuMemAllocAsync_ptsz, L(&inner), 70000, 0) == SUCCESS) C(cuMemFreeAsync_ptsz, L(inner), 0);
        if (kind == 0 && C(cuMemAllocFromPoolAsync_ptsz, L(&inner), 70000, L(pool), 0) == SUCCESS) C(cuMemFreeAsync_ptsz, L(inner), 0);
        graph = NULL;
        if (C(cuStreamEndCapture_ptsz, 0, L(&graph)) != SUCCESS || !graph) continue;
        if (C(cuGraphInstantiateWithParams_ptsz, L(&exec), L(graph), L(&params)) == SUCCESS) {
            CUgraphNode node = NULL;
            if (kind == 2) C(cuGraphExecUpdate, L(exec), L(graph), L(&node), L(&status));
            C(cuGraphUpload_ptsz, L(exec), 0);
            C(cuGraphLaunch_ptsz, L(exec), 0);
            C(cuStreamSynchronize_ptsz, 0);
            C(cuGraphExecDestroy, L(exec));
        }
        C(cuGraphDestroy, L(graph));
    }
    C(cuDeviceGraphMemTrim, 0);
    for (int kind = 0; kind < 3; kind++) {
        long result = kind == 0   ? C(cuCtxCreate, L(&made), 0, 0)
                      : kind == 1 ? C(cuCtxCreate_v3, L(&made), 0, 0, 0, 0)
                                  : C(cuCtxCreate_v4, L(&made), 0, 0, 0);
        if (result != SUCCESS) continue;
        give(take(DEVICE, 100000, LEGACY, NULL), anywhere);
        if (C(cuStreamCreate, L(&stream), 1) == SUCCESS) C(cuStreamDestroy, L(stream));
        if (kind == 0 && C(cuCtxPopCurrent, L(&popped)) == SUCCESS) C(cuCtxPushCurrent, L(made));
        C(cuCtxSynchronize, 0);
        if (kind == 0) C(cuCtxDestroy_v2, L(made));
        if (kind == 1) C(cuCtxDestroy, L(made));
        /* Two claims on it, of which the second ends it. */
        if (kind == 2 && C(cuCtxAttach, L(&made), 0) == SUCCESS) C(cuCtxDetach, L(made));
        if (kind == 2) C(cuCtxDetach, L(made));
        C(cuCtxSetCurrent, L(primary[0]));
    }
    if (devices < 2) return;
    C(cuDevicePrimaryCtxRetain, L(&made), 1);
    C(cuDevicePrimaryCtxRelease, 1);
    C(cuDevicePrimaryCtxReset, 1);
}

/* A context on some of the device's processors. */
static void green(void) {
    void *made = NULL;
    CUcontext context = NULL;
    CUstream stream = NULL;
    if (C(cuGreenCtxCreate, L(&made), 1, 0, 1) != SUCCESS) return;
    if (C(cuCtxFromGreenCtx, L(&context), L(made)) == SUCCESS && C(cuCtxSetCurrent, L(context)) == SUCCESS) {
        if (C(cuGreenCtxStreamCreate, L(&stream), L(made), 1, 0) == SUCCESS) {
            give(take(DEVICE, 100000, stream, NULL), stream);
            give(take(ASYNC, 100000, stream, NULL), stream);
            C(cuStreamSynchronize, L(stream));
            C(cuStreamDestroy_v2, L(stream));
        }
        C(cuCtxSynchronize, 0);
        C(cuCtxSetCurrent, L(primary[0]));
    }
    C(cuGreenCtxDestroy, L(made));
}

static void contexts(void) {
    CUcontext made = NULL, popped = NULL;
    CUstream stream = NULL;
    unsigned flags = 0;
    int active = 0;
    C(cuDevicePrimaryCtxGetState, 0, L(&flags), L(&active));
    if (C(cuCtxGetFlags, L(&flags)) == SUCCESS) C(cuCtxSetFlags, flags);
    green();
    if (C(cuCtxCreate_v2, L(&made), 0, 0) != SUCCESS) return;
    if (C(cuStreamCreate, L(&stream), 1) == SUCCESS) {
        give(take(DEVICE, 100000, stream, NULL), anywhere);
        give(take(ASYNC, 100000, stream, NULL), stream);
        give(take(DEVICE, 3 * MIB, stream, NULL), stream);
        C(cuStreamDestroy_v2, L(stream));
    }
    if (C(cuStreamCreateWithPriority, L(&stream), 1, -1) == SUCCESS) C(cuStreamDestroy_v2, L(stream));
    C(cuCtxSynchronize_v2, L(made));
    C(cuCtxPopCurrent_v2, L(&popped));
    C(cuCtxPushCurrent_v2, L(made));
    C(cuCtxPopCurrent_v2, L(&popped));
    C(cuCtxSetCurrent, L(primary[0]));
    C(cuCtxDestroy_v2, L(made));
    C(cuCtxSetCurrent, L(primary[0]));
    if (devices < 2) return;
    /* The other device: peers, its own memory, its primary context released and reset. */
    C(cuCtxSetCurrent, L(primary[1]));
    Block *there = take(DEVICE, 4 * MIB, LEGACY, NULL);
    C(cuCtxSynchronize, 0);
    C(cuCtxSetCurrent, L(primary[0]));
    C(cuCtxEnablePeerAccess, L(primary[1]), 0);
    if (there) work(LEGACY, there->address, there->bytes, 0, 10000);
    C(cuCtxSynchronize, 0);
    C(cuCtxDisablePeerAccess, L(primary[1]));
    C(cuCtxSetCurrent, L(primary[1]));
    give(there, anywhere);
    give(take(ASYNC, 4 * MIB, LEGACY, NULL), LEGACY);
    C(cuCtxSynchronize, 0);
    C(cuCtxSetCurrent, L(primary[0]));
    C(cuDevicePrimaryCtxRetain, L(&made), 1);
    C(cuDevicePrimaryCtxRelease_v2, 1);
    C(cuDevicePrimaryCtxReset_v2, 1);
}

/* Memory of the program's own, as it leaves the process and comes into it. */
static void shared(CUhandle memory) {
    CUhandle other = 0;
    void *external = NULL;
    int descriptor = -1;
    AllocationProp props;
    C(cuMemGetAllocationPropertiesFromHandle, L(&props), L(memory));
    if (C(cuMemExportToShareableHandle, L(&descriptor), L(memory), 1, 0) != SUCCESS) return;
    if (C(cuMemImportFromShareableHandle, L(&other), descriptor, 1) == SUCCESS) C(cuMemRelease, L(other));
    ExternalMemory wanted = {.kind = 1, .descriptor = descriptor, .size = 2 * MIB};
    /* The descriptor is the driver's from here on, if it takes it. */
    if (C(cuImportExternalMemory, L(&external), L(&wanted)) == SUCCESS) C(cuDestroyExternalMemory, L(external));
    else close(descriptor);
}

/* Another process's blocks: a large one, and a part of a page. */
static void imported(void) {
    CUdeviceptr address[2] = {0};
    for (int i = 0; i < 2; i++)
        if (C(cuIpcOpenMemHandle_v2, L(&address[i]), 1, 0, 0, 0, 0, ON_STACK(theirs[i])) == SUCCESS && *(unsigned char *)address[i] != 10 + i) {
            printf("spoiled %#llx, another process's\n", address[i]);
            spoiled++;
        }
    for (int i = 0; i < 2; i++)
        if (address[i]) C(cuIpcCloseMemHandle, L(address[i]));
    if (C(cuIpcOpenMemHandle, L(address), 1, 0, 0, 0, 0, ON_STACK(theirs[0])) == SUCCESS) C(cuIpcCloseMemHandle, L(address[0]));
}

/* The other process: handles of its blocks go to standard output, and it ends with standard input. */
static int exporter(void) {
    CUcontext context = NULL;
    CUdeviceptr block[2] = {0};
    char byte;
    open_driver();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++) {
        IpcHandle handle;
        OK(cuMemAlloc_v2(&block[i], i ? 70000 : 3 * MIB));
        OK(cuMemsetD8_v2(block[i], 10 + i, 70000));
        OK(cuIpcGetMemHandle(&handle, block[i]));
        memcpy(theirs[i], &handle, sizeof handle);
    }
    OK(cuCtxSynchronize());
    if (write(1, theirs, sizeof theirs) != (ssize_t)sizeof theirs) return 4;
    return read(0, &byte, 1) != 0;
}

/* Starts it; no fault strikes it. */
static void start_exporter(void) {
    int ours[2], its[2];
    if (pipe(ours) || pipe(its)) exit(4);
    if (!fork()) {
        dup2(its[0], 0);
        dup2(ours[1], 1);
        close(its[1]);
        unsetenv("STANDIN_FAULT");
        unsetenv("STANDIN_COUNT");
        setenv("GPUSHIM_TRACE", "off", 1);
        execl("/proc/self/exe", "workload", "exporter", NULL);
        _exit(4);
    }
    close(ours[1]);
    close(its[0]);
    if (read(ours[0], theirs, sizeof theirs) != (ssize_t)sizeof theirs) exit(4);
}

/* Memory that the pools do not serve: the shim sees it pass. */
static void passing(void) {
    static char code[] = "code", page[1 << 20] __attribute__((aligned(4096)));
    CUdeviceptr address = 0, reserved = 0, mapped = 0;
    unsigned flags = 0;
    unsigned long long rights = 0;
    size_t pitch = 0;
    void *host = NULL, *module = NULL, *array = NULL;
    CUhandle memory = 0;
    ArrayDescriptor flat = {64, 64, 0x20, 1};
    Array3DDescriptor deep = {64, 64, 4, 0x20, 1, 0};
    AllocationProp props = {.type = 1, .handles = 1, .location = {1, 0}};
    AccessDesc access = {{1, 0}, 3};
    if (C(cuMemAllocPitch_v2, L(&address), L(&pitch), 1000, 100, 4) == SUCCESS) C(cuMemFree_v2, L(address));
    if (C(cuMemAllocManaged, L(&address), L(MIB), 1) == SUCCESS) C(cuMemFree_v2, L(address));
    /* Mapped into the device. */
    if (C(cuMemHostAlloc, L(&host), 100000, 2) == SUCCESS) {
        C(cuMemHostGetDevicePointer_v2, L(&mapped), L(host), 0);
        C(cuMemHostGetFlags, L(&flags), L(host));
        C(cuMemFreeHost, L(host));
    }
    if (C(cuMemAllocHost_v2, L(&host), 100000) == SUCCESS) C(cuMemFreeHost, L(host));
    if (C(cuMemHostRegister_v2, L(page), sizeof page, 0) == SUCCESS) C(cuMemHostUnregister, L(page));
    if (C(cuArrayCreate_v2, L(&array), L(&flat)) == SUCCESS) C(cuArrayDestroy, L(array));
    if (C(cuArray3DCreate_v2, L(&array), L(&deep)) == SUCCESS) C(cuArrayDestroy, L(array));
    if (C(cuMipmappedArrayCreate, L(&array), L(&deep), 3) == SUCCESS) C(cuMipmappedArrayDestroy, L(array));
    if (C(cuModuleLoadData, L(&module), L(code)) == SUCCESS) C(cuModuleUnload, L(module));
    if (C(cuModuleLoadDataEx, L(&module), L(code), 0, 0, 0) == SUCCESS) C(cuModuleUnload, L(module));
    if (C(cuModuleLoadFatBinary, L(&module), L(code)) == SUCCESS) C(cuModuleUnload, L(module));
    if (C(cuModuleLoad, L(&module), L("/proc/self/exe")) == SUCCESS) C(cuModuleUnload, L(module));
    if (C(cuLibraryLoadFromFile, L(&module), L("/proc/self/exe"), 0, 0, 0, 0, 0, 0) == SUCCESS) C(cuLibraryUnload, L(module));
    if (C(cuLibraryLoadData, L(&module), L(code), 0, 0, 0, 0, 0, 0) == SUCCESS) {
        void *part = NULL;
        C(cuLibraryGetModule, L(&part), L(module));
        if (C(cuLibraryGetKernel, L(&part), L(module), L("kernel")) == SUCCESS) C(cuKernelGetFunction, L(&part), L(part));
        C(cuLibraryUnload, L(module));
    }
    if (getenv("STANDIN_LACKS")) return;
    if (C(cuMemAddressReserve, L(&reserved), L(4 * MIB), 0, 0, 0) != SUCCESS) return;
    AllocationProp plain = {.type = 1, .location = {1, 0}};
    if (C(cuMemCreate, L(&memory), L(2 * MIB), L(&plain), 0) == SUCCESS) C(cuMemRelease, L(memory));
    if (C(cuMemCreate, L(&memory), L(2 * MIB), L(&props), 0) == SUCCESS) {
        if (C(cuMemMap, L(reserved), L(2 * MIB), 0, L(memory), 0) == SUCCESS) {
            if (C(cuMemSetAccess, L(reserved), L(2 * MIB), L(&access), 1) == SUCCESS)
                C(cuMemGetAccess, L(&rights), L(&access.location), L(reserved));
            C(cuMemUnmap, L(reserved), L(2 * MIB));
        }
        shared(memory);
        C(cuMemRelease, L(memory));
    }
    C(cuMemAddressFree, L(reserved), L(4 * MIB));
}

/* More than there is, after which the caches are empty and the rest goes on. */
static void shortage(CUstream stream) {
    CUdeviceptr address = 0;
    Block *block[8];
    for (int i = 0; i < 8; i++) block[i] = take(i & 1 ? ASYNC : DEVICE, 20 * MIB, stream, NULL);
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2, L(&address), L(2 * GIB));
    EXPECT(OUT_OF_MEMORY, cuMemAllocAsync, L(&address), L(2 * GIB), L(stream));
    for (int i = 0; i < 8; i++) give(block[i], i & 1 ? stream : anywhere);
    /* Sizes that the cached blocks do not fit: they must go back. */
    for (int i = 0; i < 2; i++) {
        Block *large = take(i ? ASYNC : DEVICE, 190 * MIB, stream, NULL);
        give(large, i ? stream : anywhere);
        C(cuStreamSynchronize, L(stream));
    }
}

static void *beside(void *unused) {
    CUstream stream = NULL;
    uint64_t state = 12345;
    (void)unused;
    C(cuCtxSetCurrent, L(primary[0]));
    if (C(cuStreamCreate, L(&stream), 1) != SUCCESS) return NULL;
    while (!over) {
        Family family = next(&state) & 1 ? ASYNC : DEVICE;
        Block *one = take(family, 1000 + next(&state) % (2 * MIB), stream, NULL);
        sleep_ms(1);
        give(one, family == ASYNC || next(&state) & 1 ? stream : anywhere);
    }
    C(cuStreamDestroy_v2, L(stream));
    return NULL;
}

/* Free bytes of device 0 by the driver's own count. */
static size_t really_free(void) {
    CUresult (*info)(size_t *, size_t *) = (CUresult(*)(size_t *, size_t *))true_symbol(library, "cuMemGetInfo_v2");
    size_t bytes = 0, total = 0;
    for (int attempt = 0; attempt < 3 && info(&bytes, &total); attempt++) continue;
    return bytes;
}

static void all_of_it(CUmemoryPool pool) {
    CUstream a = NULL, b = NULL;
    if (C(cuStreamCreate, L(&a), 1) || C(cuStreamCreate, L(&b), 1)) return;
    /* Memory with a handle may stay for good: only where that is asked for. */
    const char *parts = getenv("PARTS") ? getenv("PARTS") : "dogcvpisd";
    for (; *parts; parts++) {
        if (*parts == 'd') device_memory(a);
        if (*parts == 'a') asked_about(a);
        if (*parts == 'o') ordered_memory(a, b, pool);
        if (*parts == 'g') graphs(a, b);
        if (*parts == 'v') variants();
        if (*parts == 'c') contexts();
        if (*parts == 'p') passing();
        if (*parts == 'i') imported();
        if (*parts == 's') shortage(a);
    }
    C(cuStreamDestroy_v2, L(a));
    C(cuStreamDestroy_v2, L(b));
}

int main(int argc, char **argv) {
    CUmemoryPool pool = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strcmp(argv[1], "exporter")) return exporter();
    start_exporter();
    open_driver();
    library = driver;
    *(void **)&hits = dlsym(library, "standin_hits");
    void (*counts)(int) = (void (*)(int))dlsym(library, "standin_calls");
    C(cuInit, 0);
    C(cuDeviceGetCount, L(&devices));
    for (int i = 0; i < devices; i++) C(cuDevicePrimaryCtxRetain, L(&primary[i]), i);
    for (int i = 0; i < devices; i++)
        if (!primary[i]) return 4;
    if (C(cuCtxSetCurrent, L(primary[0]))) return 4;
    /* What the driver takes for the first small blocks stays with it. */
    C(cuDeviceGetDefaultMemPool, L(&pool), 0);
    size_t before = really_free(), after = 0;
    pthread_t thread;
    together = argc > 1 && !strcmp(argv[1], "together");
    if (together) pthread_create(&thread, NULL, beside, NULL);
    all_of_it(pool);
    over = 1;
    if (together) pthread_join(thread, NULL);
    check_all();
    int left = 0;
    for (int i = 0; i < MOST; i++) left += live[i].address != 0;
    C(cuCtxSynchronize, 0);
    if (pool) C(cuMemPoolTrimTo, L(pool), 0);
    /* The caches decay; GPUSHIM_DECAY is short. ALLOW: bytes that stay without faults, too. */
    size_t allowed = getenv("ALLOW") ? strtoul(getenv("ALLOW"), NULL, 10) : 0;
    for (int i = 0; i < 400; i++) {
        after = really_free();
        if (after + allowed >= before) break;
        sleep_ms(2);
    }
    printf("end hits %llu overlaps %ld spoiled %ld left %d lost %lld\n", (unsigned long long)hits(1), overlaps, spoiled, left,
           (long long)before - (long long)after);
    size_t (*stats)(uint64_t *, size_t) = NULL;
    *(void **)&stats = dlsym(RTLD_DEFAULT, "gpushim_stats");
    if (stats) {
        uint64_t own[5] = {0};
        stats(own, 5);
        printf("stats live %llu cached %llu reserved %llu quarantined %llu\n", (unsigned long long)own[0], (unsigned long long)own[2],
               (unsigned long long)own[3], (unsigned long long)own[4]);
    }
    if (counts && getenv("STANDIN_COUNT")) {
        printf("counts\n");
        fflush(stdout);
        counts(1);
    }
    return 0;
}

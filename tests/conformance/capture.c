/* Stream capture: for each mode and call its code, and what became of the capture. */
#include "conformance.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the probed calls work on, made before the capture begins and cleared away after it ended. */
static struct {
    CUcontext context;
    CUstream capturing, other, blocking, spare_stream;
    CUdeviceptr live, victim, async_victim, range, mapped, made, made2;
    CUhandle handle, made_handle;
    CUevent event, pending, captured, spare_event;
    void *host, *plain, *made_host;
    CUarray array, made_array;
    CUmemoryPool pool, made_pool;
    CUgraphExec exec;
    CUstream made_stream;
    CUevent made_event;
} e;

#define PROBE(name, expression) static CUresult probe_##name(void) { return expression; }
static size_t size_, total_;
static CUdeviceptr base_;
static int status_, value_;
static AllocationProp prop_ = {.type = 1, .location = {1, 0}};
static AccessDesc access_ = {{1, 0}, 3};
static PoolProps pool_props_ = {.type = 1, .location = {1, 0}};
static ArrayDescriptor descriptor_ = {16, 16, 0x20, 1};
static IpcHandle ipc_;
static CUcontext context_;
static char bytes_[64];

#define PROBES(P) \
    P(cuMemAlloc, cuMemAlloc_v2(&e.made, 4096)) \
    P(cuMemAlloc_0, cuMemAlloc_v2(&e.made, 0)) \
    P(cuMemAlloc_16TiB, cuMemAlloc_v2(&e.made, (size_t)1 << 44)) \
    P(cuMemFree, cuMemFree_v2(e.victim)) \
    P(cuMemFree_null, cuMemFree_v2(0)) \
    P(cuMemFree_unknown, cuMemFree_v2(0x7f0000000000ull)) \
    P(cuMemFree_of_async, cuMemFree_v2(e.async_victim)) \
    P(cuMemAllocManaged, cuMemAllocManaged(&e.made, 4096, 1)) \
    P(cuMemAllocPitch, cuMemAllocPitch_v2(&e.made, &size_, 100, 10, 4)) \
    P(cuMemHostAlloc, cuMemHostAlloc(&e.made_host, 4096, 0)) \
    P(cuMemFreeHost, cuMemFreeHost(e.host)) \
    P(cuMemHostRegister, cuMemHostRegister_v2(e.plain, 4096, 0)) \
    P(cuArrayCreate, cuArrayCreate_v2(&e.made_array, &descriptor_)) \
    P(cuArrayDestroy, cuArrayDestroy(e.array)) \
    P(cuMemGetInfo, cuMemGetInfo_v2(&size_, &total_)) \
    P(cuMemGetAddressRange, cuMemGetAddressRange_v2(&base_, &size_, e.live)) \
    P(cuPointerGetAttribute, cuPointerGetAttribute(&value_, 2, e.live)) \
    P(cuIpcGetMemHandle, cuIpcGetMemHandle(&ipc_, e.live)) \
    P(cuMemAddressReserve, cuMemAddressReserve(&e.made2, 2 * MIB, 0, 0, 0)) \
    P(cuMemCreate, cuMemCreate(&e.made_handle, 2 * MIB, &prop_, 0)) \
    P(cuMemMap, cuMemMap(e.range, 2 * MIB, 0, e.handle, 0)) \
    P(cuMemSetAccess, cuMemSetAccess(e.mapped, 2 * MIB, &access_, 1)) \
    P(cuMemUnmap, cuMemUnmap(e.mapped, 2 * MIB)) \
    P(cuMemRelease, cuMemRelease(e.handle)) \
    P(cuMemAllocAsync_other_stream, cuMemAllocAsync(&e.made2, 4096, e.other)) \
    P(cuMemAllocAsync_capturing_stream, cuMemAllocAsync(&base_, 4096, e.capturing)) \
    P(cuMemAllocAsync_legacy_stream, cuMemAllocAsync(&e.made2, 4096, LEGACY)) \
    P(cuMemFreeAsync_other_stream, cuMemFreeAsync(e.async_victim, e.other)) \
    P(cuMemFreeAsync_capturing_stream, cuMemFreeAsync(e.async_victim, e.capturing)) \
    P(cuMemFreeAsync_of_cuMemAlloc_capturing_stream, cuMemFreeAsync(e.victim, e.capturing)) \
    P(cuMemPoolCreate, cuMemPoolCreate(&e.made_pool, &pool_props_)) \
    P(cuMemPoolTrimTo, cuMemPoolTrimTo(e.pool, 0)) \
    P(cuMemPoolGetAttribute, cuMemPoolGetAttribute(e.pool, 5, &base_)) \
    P(cuDeviceGetMemPool, cuDeviceGetMemPool((CUmemoryPool *)&base_, 0)) \
    P(cuEventCreate, cuEventCreate(&e.made_event, 2)) \
    P(cuEventDestroy, cuEventDestroy_v2(e.spare_event)) \
    P(cuEventQuery, cuEventQuery(e.event)) \
    P(cuEventQuery_of_captured, cuEventQuery(e.captured)) \
    P(cuEventSynchronize, cuEventSynchronize(e.event)) \
    P(cuEventSynchronize_of_captured, cuEventSynchronize(e.captured)) \
    P(cuEventRecord_other_stream, cuEventRecord(e.pending, e.other)) \
    P(cuEventRecord_capturing_stream, cuEventRecord(e.pending, e.capturing)) \
    P(cuEventRecord_blocking_stream, cuEventRecord(e.pending, e.blocking)) \
    P(cuEventRecord_legacy_stream, cuEventRecord(e.pending, LEGACY)) \
    P(cuEventRecord_per_thread_stream, cuEventRecord(e.pending, PER_THREAD)) \
    P(cuStreamWaitEvent_other_waits_for_captured, cuStreamWaitEvent(e.other, e.captured, 0)) \
    P(cuStreamWaitEvent_capturing_waits_for_outside, cuStreamWaitEvent(e.capturing, e.event, 0)) \
    P(cuStreamCreate, cuStreamCreate(&e.made_stream, 1)) \
    P(cuStreamCreate_blocking, cuStreamCreate(&e.made_stream, 0)) \
    P(cuStreamDestroy, cuStreamDestroy_v2(e.spare_stream)) \
    P(cuStreamQuery_other, cuStreamQuery(e.other)) \
    P(cuStreamQuery_capturing, cuStreamQuery(e.capturing)) \
    P(cuStreamQuery_legacy, cuStreamQuery(LEGACY)) \
    P(cuStreamSynchronize_other, cuStreamSynchronize(e.other)) \
    P(cuStreamSynchronize_capturing, cuStreamSynchronize(e.capturing)) \
    P(cuStreamIsCapturing_legacy, cuStreamIsCapturing(LEGACY, &status_)) \
    P(cuStreamIsCapturing_other, cuStreamIsCapturing(e.other, &status_)) \
    P(cuCtxSynchronize, cuCtxSynchronize()) \
    P(cuCtxRecordEvent, cuCtxRecordEvent(e.context, e.pending)) \
    P(cuCtxWaitEvent, cuCtxWaitEvent(e.context, e.event)) \
    P(cuCtxGetCurrent, cuCtxGetCurrent(&context_)) \
    P(cuCtxSetCurrent, cuCtxSetCurrent(e.context)) \
    P(cuMemsetD8Async_other_stream, cuMemsetD8Async(e.live, 1, 16, e.other)) \
    P(cuMemsetD8Async_capturing_stream, cuMemsetD8Async(e.live, 1, 16, e.capturing)) \
    P(cuMemsetD8Async_legacy_stream, cuMemsetD8Async(e.live, 1, 16, LEGACY)) \
    P(cuMemsetD8, cuMemsetD8_v2(e.live, 1, 16)) \
    P(cuMemcpyHtoD, cuMemcpyHtoD_v2(e.live, bytes_, 16)) \
    P(cuMemcpyDtoH, cuMemcpyDtoH_v2(bytes_, e.live, 16)) \
    P(cuMemcpyDtoHAsync_other_stream, cuMemcpyDtoHAsync_v2(bytes_, e.live, 16, e.other)) \
    P(cuGraphLaunch_other_stream, cuGraphLaunch(e.exec, e.other)) \
    P(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain(&context_, 0)) \
    P(cuStreamBeginCapture_other_global, cuStreamBeginCapture_v2(e.other, 0)) \
    P(cuStreamBeginCapture_other_thread_local, cuStreamBeginCapture_v2(e.other, 1)) \
    P(cuStreamBeginCapture_other_relaxed, cuStreamBeginCapture_v2(e.other, 2)) \
    P(cuStreamBeginCapture_again, cuStreamBeginCapture_v2(e.capturing, 2))
PROBES(PROBE)

static const struct { const char *name; CUresult (*call)(void); } probes[] = {
#define ROW(name, expression) {#name, probe_##name},
    PROBES(ROW)
#undef ROW
};

/* What is being done, for the report of a crash. */
static const char *doing = "";
#define STEP(expression) (doing = #expression, (expression))
static void crashed(int number) {
    fprintf(stderr, "conformance: signal %d in %s\n", number, doing);
    _exit(1);
}

static void prepare(void) {
    /* Streams and events serve all probes; memory is new each time. */
    if (!e.capturing) e.capturing = side_stream(), e.other = side_stream(), cuStreamCreate(&e.blocking, 0);
    if (!e.event) e.event = plain_event(), e.pending = plain_event(), e.captured = plain_event();
    if (!e.spare_stream) e.spare_stream = side_stream();
    if (!e.spare_event) e.spare_event = plain_event();
    STEP(cuMemAlloc_v2(&e.live, 4096)), STEP(cuMemAlloc_v2(&e.victim, 4096));
    STEP(cuMemAllocAsync(&e.async_victim, 4096, e.other));
    STEP(cuMemHostAlloc(&e.host, 4096, 0));
    STEP(cuArrayCreate_v2(&e.array, &descriptor_));
    STEP(cuMemAddressReserve(&e.range, 2 * MIB, 0, 0, 0)), STEP(cuMemAddressReserve(&e.mapped, 2 * MIB, 0, 0, 0));
    STEP(cuMemCreate(&e.handle, 2 * MIB, &prop_, 0));
    STEP(cuMemMap(e.mapped, 2 * MIB, 0, e.handle, 0)), STEP(cuMemSetAccess(e.mapped, 2 * MIB, &access_, 1));
    e.made = e.made2 = 0, e.made_handle = 0, e.made_host = NULL, e.made_array = NULL, e.made_pool = NULL;
    e.made_stream = NULL, e.made_event = NULL;
    STEP(cuEventRecord(e.event, e.other));
    STEP(cuCtxSynchronize());
}

/* Clears away what the probe `name` has left. What it has taken, successfully, is not there any more. */
static void clear(const char *name, CUresult result) {
#define TAKEN(probe) (result == 0 && !strncmp(name, probe, strlen(probe)))
    STEP(cuCtxSynchronize());
    STEP(cuMemFree_v2(e.live));
    if (!TAKEN("cuMemFree") || strcmp(name, "cuMemFree")) {
        if (!TAKEN("cuMemFreeAsync_of_cuMemAlloc")) STEP(cuMemFree_v2(e.victim));
    }
    if (e.made) STEP(cuMemFree_v2(e.made));
    if (e.made2) {
        if (!strcmp(name, "cuMemAddressReserve")) STEP(cuMemAddressFree(e.made2, 2 * MIB));
        else STEP(cuMemFree_v2(e.made2));
    }
    if (!TAKEN("cuMemFree_of_async") && !TAKEN("cuMemFreeAsync_other") && !TAKEN("cuMemFreeAsync_capturing")) STEP(cuMemFree_v2(e.async_victim));
    if (!TAKEN("cuMemFreeHost")) STEP(cuMemFreeHost(e.host));
    if (!TAKEN("cuArrayDestroy")) STEP(cuArrayDestroy(e.array));
    if (!TAKEN("cuMemUnmap")) STEP(cuMemUnmap(e.mapped, 2 * MIB));
    if (TAKEN("cuMemMap")) STEP(cuMemUnmap(e.range, 2 * MIB));
    if (!TAKEN("cuMemRelease")) STEP(cuMemRelease(e.handle));
    STEP(cuMemAddressFree(e.mapped, 2 * MIB)), STEP(cuMemAddressFree(e.range, 2 * MIB));
    if (TAKEN("cuMemHostRegister")) STEP(cuMemHostUnregister(e.plain));
    if (TAKEN("cuStreamDestroy")) e.spare_stream = NULL;
    if (TAKEN("cuEventDestroy")) e.spare_event = NULL;
    if (e.made_host) STEP(cuMemFreeHost(e.made_host));
    if (e.made_handle) STEP(cuMemRelease(e.made_handle));
    if (e.made_array) STEP(cuArrayDestroy(e.made_array));
    if (e.made_pool) STEP(cuMemPoolDestroy(e.made_pool));
    if (e.made_stream) STEP(cuStreamDestroy_v2(e.made_stream));
    if (e.made_event) STEP(cuEventDestroy_v2(e.made_event));
#undef TAKEN
}

static CUresult (*thread_call)(void);
static CUresult thread_result;
static void *on_thread(void *unused) {
    cuCtxSetCurrent(e.context);
    thread_result = thread_call();
    return unused;
}

enum { PLAIN, EXCHANGED, THREAD, THREAD_EXCHANGED };
static CUresult exchanged_call(void);
static CUresult (*exchanged)(void);
static CUresult exchanged_call(void) {
    int mode = 2;
    cuThreadExchangeStreamCaptureMode(&mode);
    CUresult result = exchanged();
    cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

static void probe(int mode, int how, const char *mode_name, const char *how_name, const char *name, CUresult (*call)(void)) {
    static const char *const states[] = {"none", "active", "invalidated"};
    prepare();
    CUgraph graph = NULL;
    int status = -1;
    doing = name;
    cuStreamBeginCapture_v2(e.capturing, mode);
    cuEventRecord(e.captured, e.capturing);
    CUresult result;
    exchanged = call;
    if (how == EXCHANGED || how == THREAD_EXCHANGED) call = exchanged_call;
    if (how == THREAD || how == THREAD_EXCHANGED) {
        pthread_t thread;
        thread_call = call;
        pthread_create(&thread, NULL, on_thread, NULL);
        pthread_join(thread, NULL);
        result = thread_result;
    } else {
        result = call();
    }
    cuStreamIsCapturing(e.capturing, &status);
    CUresult end = STEP(cuStreamEndCapture(e.capturing, &graph));
    char out[160];
    snprintf(out, sizeof out, "%s, capture %s", code_name(result), status >= 0 && status < 3 ? states[status] : "?");
    snprintf(out + strlen(out), sizeof out - strlen(out), ", end %s", code_name(end));
    text(out, "capture.%s%s.%s", mode_name, how_name, name);
    if (graph) STEP(cuGraphDestroy(graph));
    /* Other streams that the probe has drawn into a capture. */
    CUstream also[] = {e.other, e.blocking, e.capturing};
    for (int i = 0; i < 3; i++) {
        status = 0, graph = NULL;
        cuStreamIsCapturing(also[i], &status);
        if (status) STEP(cuStreamEndCapture(also[i], &graph));
        if (graph) STEP(cuGraphDestroy(graph));
    }
    clear(name, result);
}

static CUstream thread_stream;
static int thread_mode;
static CUresult begin_there(void) { return cuStreamBeginCapture_v2(thread_stream, thread_mode); }

/* A capture begun by a thread that is gone, ended by this one. */
static void ended_elsewhere(void) {
    static const char *const modes[] = {"global", "thread_local", "relaxed"};
    for (thread_mode = 0; thread_mode < 3; thread_mode++) {
        pthread_t thread;
        CUgraph graph = NULL;
        int status = -1;
        thread_stream = side_stream();
        thread_call = begin_there;
        pthread_create(&thread, NULL, on_thread, NULL);
        pthread_join(thread, NULL);
        code(thread_result, "capture.begun_elsewhere.%s.begin", modes[thread_mode]);
        cuStreamIsCapturing(thread_stream, &status);
        number(status, "capture.begun_elsewhere.%s.status", modes[thread_mode]);
        code(cuStreamEndCapture(thread_stream, &graph), "capture.begun_elsewhere.%s.end", modes[thread_mode]);
        cuStreamIsCapturing(thread_stream, &status);
        number(status, "capture.begun_elsewhere.%s.status_after", modes[thread_mode]);
        code(cuMemsetD8Async(0, 0, 0, thread_stream), "capture.begun_elsewhere.%s.work_after", modes[thread_mode]);
    }
}

static void basics(void) {
    CUgraph graph = (CUgraph)1;
    CUstream s = side_stream();
    int status = -1, mode = 0;
    code(cuStreamEndCapture(s, &graph), "capture.end_without_begin");
    code(cuStreamIsCapturing(s, &status), "capture.status_outside.code");
    number(status, "capture.status_outside");
    code(cuStreamBeginCapture_v2(LEGACY, 2), "capture.begin_on_legacy");
    code(cuStreamBeginCapture_v2(NULL, 2), "capture.begin_on_null");
    code(cuStreamBeginCapture_v2(s, 7), "capture.begin_bad_mode");
    code(cuStreamBeginCapture_v2(PER_THREAD, 2), "capture.begin_on_per_thread");
    cuStreamEndCapture(PER_THREAD, &graph);
    code(cuThreadExchangeStreamCaptureMode(&mode), "capture.exchange.code");
    number(mode, "capture.exchange.default_was");
    mode = 9;
    code(cuThreadExchangeStreamCaptureMode(&mode), "capture.exchange.bad_mode");
    mode = 0; /* null crashes the real driver; the bad mode is put right */
    cuThreadExchangeStreamCaptureMode(&mode);
    code(cuStreamBeginCapture_v2(s, 0), "capture.empty.begin");
    code(cuStreamIsCapturing(s, &status), "capture.empty.status.code");
    number(status, "capture.empty.status");
    graph = NULL;
    code(cuStreamEndCapture(s, &graph), "capture.empty.end");
    size_t count = 99;
    cuGraphGetNodes(graph, NULL, &count);
    number((long long)count, "capture.empty.nodes");
    number(graph != NULL, "capture.empty.graph");
    cuGraphDestroy(graph);
    cuStreamDestroy_v2(s);

    /* A second stream joined by an event and not brought back. */
    CUstream a = side_stream(), b = side_stream();
    CUevent event = plain_event();
    cuStreamBeginCapture_v2(a, 0);
    cuEventRecord(event, a);
    code(cuStreamWaitEvent(b, event, 0), "capture.fork.wait");
    cuStreamIsCapturing(b, &status);
    number(status, "capture.fork.second_status");
    code(cuStreamEndCapture(b, &graph), "capture.fork.end_on_second");
    cuStreamIsCapturing(a, &status);
    number(status, "capture.fork.first_status_after");
    code(cuStreamEndCapture(a, &graph), "capture.fork.end_unjoined");
    cuStreamIsCapturing(b, &status);
    number(status, "capture.fork.second_status_after_end");
    cuStreamDestroy_v2(a), cuStreamDestroy_v2(b);
    /* Destroying a capturing stream. */
    a = side_stream();
    cuStreamBeginCapture_v2(a, 0);
    code(cuStreamDestroy_v2(a), "capture.destroy_capturing_stream");
    CUdeviceptr p = 0;
    code(cuMemAlloc_v2(&p, 16), "capture.destroy_capturing_stream.alloc_after");
    if (p) cuMemFree_v2(p);
}

void section_capture(void) {
    static const char *const modes[] = {"global", "thread_local", "relaxed"};
    static const char *const ways[] = {"", ".exchanged", ".other_thread", ".other_thread_exchanged"};
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    e.context = start();
    cuDeviceGetDefaultMemPool(&e.pool, 0);
    e.plain = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    cuGraphCreate(&graph, 0);
    cuGraphAddEmptyNode(&node, graph, NULL, 0);
    cuGraphInstantiateWithFlags(&e.exec, graph, 0);
    for (int mode = 0; mode < 3; mode++)
        for (int how = PLAIN; how <= THREAD_EXCHANGED; how++)
            for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
                probe(mode, how, modes[mode], ways[how], probes[i].name, probes[i].call);
    basics();
    ended_elsewhere();
}

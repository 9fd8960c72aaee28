/* Codes before cuInit and without a current context; primary and created contexts. */
#include "conformance.h"
#include <pthread.h>
#include <stdlib.h>

/* The calls a program might make too early, each by its code. */
static void early(const char *when) {
    CUdeviceptr p = 0;
    void *host = NULL;
    size_t n = 0, total = 0;
    CUcontext c = NULL;
    CUstream s = NULL;
    CUevent e = NULL;
    int value = 0;
    CUhandle handle = 0;
    CUmemoryPool pool = NULL;
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    CUarray array = NULL;
    ArrayDescriptor descriptor = {16, 16, 0x20, 1};
    CUgraph graph = NULL;
    code(cuDeviceGetCount(&value), "%s.cuDeviceGetCount", when);
    code(cuDeviceGet(&value, 0), "%s.cuDeviceGet", when);
    code(cuDriverGetVersion(&value), "%s.cuDriverGetVersion", when);
    code(cuCtxGetCurrent(&c), "%s.cuCtxGetCurrent", when);
    number(c == NULL, "%s.cuCtxGetCurrent.null", when);
    code(cuCtxGetDevice(&value), "%s.cuCtxGetDevice", when);
    code(cuCtxSynchronize(), "%s.cuCtxSynchronize", when);
    code(cuCtxPopCurrent_v2(&c), "%s.cuCtxPopCurrent", when);
    code(cuMemAlloc_v2(&p, 16), "%s.cuMemAlloc", when);
    code(cuMemAlloc_v2(&p, 0), "%s.cuMemAlloc_0", when);
    code(cuMemAlloc_v2(NULL, 16), "%s.cuMemAlloc_nowhere", when);
    code(cuMemFree_v2(0), "%s.cuMemFree_null", when);
    code(cuMemFree_v2(4096), "%s.cuMemFree_unknown", when);
    code(cuMemGetInfo_v2(&n, &total), "%s.cuMemGetInfo", when);
    code(cuMemGetInfo_v2(NULL, NULL), "%s.cuMemGetInfo_null", when);
    code(cuMemAllocManaged(&p, 16, 1), "%s.cuMemAllocManaged", when);
    code(cuMemAllocPitch_v2(&p, &n, 16, 16, 4), "%s.cuMemAllocPitch", when);
    code(cuMemHostAlloc(&host, 16, 0), "%s.cuMemHostAlloc", when);
    code(cuMemFreeHost(&value), "%s.cuMemFreeHost_unknown", when);
    code(cuMemFreeHost(NULL), "%s.cuMemFreeHost_null", when);
    code(cuMemHostRegister_v2(&value, 4, 0), "%s.cuMemHostRegister", when);
    code(cuMemGetAddressRange_v2(&p, &n, 4096), "%s.cuMemGetAddressRange", when);
    code(cuPointerGetAttribute(&value, 2, 4096), "%s.cuPointerGetAttribute", when);
    code(cuMemAllocAsync(&p, 16, NULL), "%s.cuMemAllocAsync", when);
    code(cuMemFreeAsync(4096, NULL), "%s.cuMemFreeAsync", when);
    code(cuDeviceGetDefaultMemPool(&pool, 0), "%s.cuDeviceGetDefaultMemPool", when);
    code(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0), "%s.cuMemAddressReserve", when);
    code(cuMemCreate(&handle, 2 * MIB, &prop, 0), "%s.cuMemCreate", when);
    code(cuMemGetAllocationGranularity(&n, &prop, 0), "%s.cuMemGetAllocationGranularity", when);
    code(cuArrayCreate_v2(&array, &descriptor), "%s.cuArrayCreate", when);
    code(cuStreamCreate(&s, 0), "%s.cuStreamCreate", when);
    code(cuStreamQuery(NULL), "%s.cuStreamQuery", when);
    code(cuEventCreate(&e, 0), "%s.cuEventCreate", when);
    code(cuGraphCreate(&graph, 0), "%s.cuGraphCreate", when);
    code(cuMemsetD8_v2(4096, 0, 1), "%s.cuMemsetD8", when);
    code(cuMemcpyHtoD_v2(4096, &value, 1), "%s.cuMemcpyHtoD", when);
    value = 2;
    code(cuThreadExchangeStreamCaptureMode(&value), "%s.cuThreadExchangeStreamCaptureMode", when);
}

void section_nocontext(void) {
    early("uninitialized");
    code(cuInit(1), "uninitialized.cuInit_flags");
    code(cuInit(0), "init");
    code(cuInit(0), "init.again");
    early("no_context");
    code(cuCtxSetCurrent(NULL), "no_context.cuCtxSetCurrent_null");
    code(cuCtxPushCurrent_v2(NULL), "no_context.cuCtxPushCurrent_null");
    /* With a primary context retained but nothing current. */
    CUcontext primary = NULL;
    cuDevicePrimaryCtxRetain(&primary, 0);
    early("retained_not_current");
    CUdeviceptr p = 0, range = 0;
    size_t n = 0;
    cuCtxSetCurrent(primary);
    cuMemAlloc_v2(&p, 1000);
    cuCtxSetCurrent(NULL);
    code(cuMemGetAddressRange_v2(&range, &n, p), "no_context.live_pointer.cuMemGetAddressRange");
    code(cuMemcpyHtoD_v2(p, &n, 8), "no_context.live_pointer.cuMemcpyHtoD");
    code(cuMemFree_v2(p), "no_context.live_pointer.cuMemFree");
    code(cuMemFree_v2(p), "no_context.live_pointer.cuMemFree_again");
}

static void primary_state(const char *when) {
    unsigned flags = 99;
    int active = -1;
    CUresult result = cuDevicePrimaryCtxGetState(0, &flags, &active);
    code(result, "context.primary.state.%s.code", when);
    number(active, "context.primary.state.%s.active", when);
    number(flags, "context.primary.state.%s.flags", when);
}

static void primary(void) {
    CUcontext a = NULL, b = NULL, current = (CUcontext)1;
    primary_state("at_start");
    code(cuDevicePrimaryCtxRelease_v2(0), "context.primary.release_inactive");
    code(cuDevicePrimaryCtxReset_v2(0), "context.primary.reset_inactive");
    code(cuDevicePrimaryCtxSetFlags_v2(0, 4), "context.primary.set_flags_inactive");
    primary_state("flags_set");
    code(cuDevicePrimaryCtxRetain(NULL, 0), "context.primary.retain_nowhere");
    code(cuDevicePrimaryCtxRetain(&a, 999), "context.primary.retain_bad_device");
    code(cuDevicePrimaryCtxRetain(&a, 0), "context.primary.retain");
    code(cuDevicePrimaryCtxRetain(&b, 0), "context.primary.retain_again");
    number(a == b, "context.primary.same_handle");
    primary_state("retained_twice");
    code(cuDevicePrimaryCtxSetFlags_v2(0, 0), "context.primary.set_flags_active");
    cuCtxGetCurrent(&current);
    number(current == NULL, "context.primary.retain_leaves_current_null");
    code(cuCtxSetCurrent(a), "context.primary.set_current");
    unsigned version = 0;
    code(cuCtxGetApiVersion(a, &version), "context.primary.api_version.code");
    number(version, "context.primary.api_version");
    code(cuDevicePrimaryCtxRelease_v2(0), "context.primary.release_first");
    primary_state("released_once");
    CUdeviceptr p = 0;
    code(cuMemAlloc_v2(&p, 4096), "context.primary.alloc_after_first_release");
    unsigned long long id = 0, id2 = 0;
    cuCtxGetId(a, &id);
    code(cuDevicePrimaryCtxReset_v2(0), "context.primary.reset_active");
    primary_state("reset");
    cuCtxGetCurrent(&current);
    number(current == a, "context.primary.reset_leaves_current");
    code(cuMemFree_v2(p), "context.primary.free_after_reset");
    code(cuCtxSynchronize(), "context.primary.synchronize_after_reset");
    code(cuCtxGetDevice(&(int){0}), "context.primary.get_device_after_reset");
    code(cuMemAlloc_v2(&p, 4096), "context.primary.alloc_after_reset");
    primary_state("used_after_reset");
    code(cuDevicePrimaryCtxRetain(&b, 0), "context.primary.retain_after_reset");
    number(a == b, "context.primary.same_handle_after_reset");
    cuCtxGetId(a, &id2);
    number(id2 != id, "context.primary.new_id_after_reset");
    primary_state("retained_after_reset");
    code(cuMemAlloc_v2(&p, 4096), "context.primary.alloc_after_reset_and_retain");
    code(cuCtxSetCurrent(b), "context.primary.set_current_after_reset");
    code(cuMemAlloc_v2(&p, 4096), "context.primary.alloc_after_set_current");
    code(cuDevicePrimaryCtxRelease_v2(0), "context.primary.release_to_zero");
    primary_state("released_to_zero");
    code(cuMemAlloc_v2(&p, 4096), "context.primary.alloc_after_last_release");
    code(cuMemFree_v2(p), "context.primary.free_after_last_release");
    code(cuDevicePrimaryCtxRelease_v2(0), "context.primary.release_below_zero");
    code(cuCtxDestroy_v2(b), "context.primary.destroy");
    cuCtxSetCurrent(NULL);
    cuDevicePrimaryCtxRetain(&a, 0);
    number(a == b, "context.primary.same_handle_after_release");
    size_t before = 0, after = 0;
    cuCtxSetCurrent(a);
    before = free_memory();
    cuMemAlloc_v2(&p, 64 * MIB);
    cuDevicePrimaryCtxReset_v2(0);
    cuDevicePrimaryCtxRetain(&a, 0);
    cuCtxSetCurrent(a);
    after = free_memory();
    number((long long)((before - after) / (64 * MIB)), "context.primary.memory_kept_by_reset_in_64MiB");
    code(cuMemFree_v2(p), "context.primary.free_of_old_pointer_in_new_context");
}

static CUcontext other_current;
static void *other_thread(void *unused) {
    cuCtxGetCurrent(&other_current);
    return unused;
}

static void created(void) {
    CUcontext base = NULL, c = NULL, d = NULL, current = NULL, popped = NULL;
    cuDevicePrimaryCtxRetain(&base, 0);
    cuCtxSetCurrent(base);
    code(cuCtxCreate_v2(NULL, 0, 0), "context.created.nowhere");
    code(cuCtxCreate_v2(&c, 0xf00, 0), "context.created.bad_flags");
    code(cuCtxCreate_v2(&c, 0, 999), "context.created.bad_device");
    code(cuCtxCreate_v2(&c, 0, 0), "context.created.code");
    cuCtxGetCurrent(&current);
    number(current == c, "context.created.is_current");
    unsigned version = 0, flags = 99;
    cuCtxGetApiVersion(c, &version);
    number(version, "context.created.api_version");
    cuCtxGetFlags(&flags);
    number(flags, "context.created.flags");
    pthread_t thread;
    other_current = (CUcontext)1;
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);
    number(other_current == NULL, "context.created.other_thread_has_none");
    code(cuCtxPopCurrent_v2(&popped), "context.pop.code");
    number(popped == c, "context.pop.is_created");
    cuCtxGetCurrent(&current);
    number(current == base, "context.pop.base_current");
    code(cuCtxPushCurrent_v2(c), "context.push.code");
    code(cuCtxPushCurrent_v2(c), "context.push.same_again");
    code(cuCtxPopCurrent_v2(NULL), "context.pop.nowhere");
    cuCtxGetCurrent(&current);
    number(current == c, "context.pop.one_level");
    code(cuCtxSetCurrent(base), "context.set.replaces_top");
    code(cuCtxPopCurrent_v2(&popped), "context.set.pop");
    number(popped == base, "context.set.pop_is_base");
    cuCtxGetCurrent(&current);
    number(current == base, "context.set.beneath_is_base");
    code(cuCtxSetCurrent(NULL), "context.set_null.code");
    cuCtxGetCurrent(&current);
    number(current == NULL, "context.set_null.current_null");
    code(cuCtxPopCurrent_v2(&popped), "context.pop.empty");

    CUdeviceptr p = 0, q = 0;
    cuCtxSetCurrent(c);
    cuMemAlloc_v2(&p, 64 * MIB);
    cuCtxSetCurrent(base);
    CUcontext owner = NULL;
    cuPointerGetAttribute(&owner, 1, p);
    number(owner == c, "context.pointer.owner_is_creator");
    CUdeviceptr start = 0;
    size_t size = 0;
    code(cuMemGetAddressRange_v2(&start, &size, p), "context.pointer.range_from_other_context");
    code(cuMemsetD8_v2(p, 1, 16), "context.pointer.memset_from_other_context");
    /* The free below waits for the owner's work only: unsynchronised, this set would run into freed memory. */
    cuCtxSynchronize();
    code(cuMemFree_v2(p), "context.pointer.free_from_other_context");
    cuCtxSetCurrent(c);
    cuMemAlloc_v2(&p, 64 * MIB);
    cuCtxSetCurrent(base);
    size_t before = free_memory();
    code(cuCtxDestroy_v2(c), "context.destroy.not_current");
    size_t after = free_memory();
    number(after >= before + 64 * MIB, "context.destroy.gives_memory_back");
    code(cuMemFree_v2(p), "context.destroy.free_of_its_pointer");
    cuCtxGetCurrent(&current);
    number(current == base, "context.destroy.other_stays_current");
    cuCtxCreate_v2(&d, 0, 0);
    cuMemAlloc_v2(&q, 4096);
    code(cuCtxDestroy_v2(d), "context.destroy.current");
    cuCtxGetCurrent(&current);
    text(current == base ? "base" : current == d ? "destroyed one" : current ? "other" : "null", "context.destroy.current_after");
    code(cuMemAlloc_v2(&p, 4096), "context.destroy.alloc_after");
    code(cuMemFree_v2(q), "context.destroy.free_after");
    code(cuCtxDestroy_v2(NULL), "context.destroy.null");
    code(cuCtxSetCurrent(base), "context.set_current_after_destroy");
    CUcontext modern = NULL;
    code(cuCtxCreate_v4(&modern, NULL, 0, 0), "context.created_v4.code");
    if (modern) cuCtxGetApiVersion(modern, &version), number(version, "context.created_v4.api_version"), cuCtxDestroy_v2(modern);
    modern = NULL;
    code(cuCtxCreate_v3(&modern, NULL, 0, 0, 0), "context.created_v3.code");
    if (modern) cuCtxGetApiVersion(modern, &version), number(version, "context.created_v3.api_version"), cuCtxDestroy_v2(modern);
    int least = 99, greatest = 99;
    cuCtxSetCurrent(base);
    code(cuCtxGetStreamPriorityRange(&least, &greatest), "context.priority_range.code");
    number(least, "context.priority_range.least");
    number(greatest, "context.priority_range.greatest");
    CUdevice device = 99;
    code(cuCtxGetDevice_v2(&device, base), "context.device_v2.code");
    code(cuCtxGetDevice_v2(&device, NULL), "context.device_v2.null_is_current");
    code(cuCtxSynchronize_v2(base), "context.synchronize_v2.code");
}

static CUcontext doomed;
static pthread_barrier_t barrier;
static void *user_of_doomed(void *unused) {
    CUdeviceptr p = 0;
    CUcontext current = NULL;
    cuCtxSetCurrent(doomed);
    cuMemAlloc_v2(&p, 4096);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    code(cuCtxGetCurrent(&current), "context.destroyed_elsewhere.get_current");
    number(current == doomed, "context.destroyed_elsewhere.still_current");
    code(cuMemAlloc_v2(&p, 4096), "context.destroyed_elsewhere.alloc");
    code(cuMemFree_v2(p), "context.destroyed_elsewhere.free");
    code(cuMemFree_v2(0), "context.destroyed_elsewhere.free_null");
    code(cuCtxSynchronize(), "context.destroyed_elsewhere.synchronize");
    code(cuMemGetInfo_v2(&(size_t){0}, &(size_t){0}), "context.destroyed_elsewhere.info");
    code(cuCtxGetDevice(&(int){0}), "context.destroyed_elsewhere.get_device");
    code(cuStreamCreate(&(CUstream){0}, 0), "context.destroyed_elsewhere.stream");
    return unused;
}

static void destroyed_elsewhere(void) {
    pthread_t thread;
    cuCtxCreate_v2(&doomed, 0, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, user_of_doomed, NULL);
    pthread_barrier_wait(&barrier);
    cuCtxDestroy_v2(doomed);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    code(cuCtxSetCurrent(doomed), "context.destroyed.set_current");
    code(cuCtxPushCurrent_v2(doomed), "context.destroyed.push");
    code(cuCtxGetApiVersion(doomed, &(unsigned){0}), "context.destroyed.api_version");
    code(cuCtxDestroy_v2(doomed), "context.destroyed.destroy_again");
}

void section_context(void) {
    cuInit(0);
    primary();
    created();
    destroyed_elsewhere();
}

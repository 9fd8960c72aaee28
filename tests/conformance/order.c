/* What waits for what: host-side waits of calls, events, and the context events of CUDA 12.5. */
#include "conformance.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static CUdeviceptr device_memory(size_t bytes) {
    CUdeviceptr p = 0;
    cuMemAlloc_v2(&p, bytes);
    return p;
}

static void frees(CUcontext context, CUstream side, CUstream blocking) {
    (void)context;
    CUdeviceptr p, q = 0;
    void *host = NULL;
    size_t pitch = 0, total = 0, available = 0;
    p = device_memory(1000);
    WAITS(side, "order.free_small.side_stream", cuMemFree_v2(p));
    p = device_memory(64 * MIB);
    WAITS(side, "order.free_large.side_stream", cuMemFree_v2(p));
    p = device_memory(1000);
    WAITS(blocking, "order.free.blocking_stream", cuMemFree_v2(p));
    p = device_memory(1000);
    WAITS(LEGACY, "order.free.legacy_stream", cuMemFree_v2(p));
    p = device_memory(1000);
    WAITS(PER_THREAD, "order.free.per_thread_stream", cuMemFree_v2(p));
    WAITS(side, "order.free_null", cuMemFree_v2(0));
    WAITS(side, "order.free_unknown", cuMemFree_v2(0x7f0000000000ull));
    WAITS(side, "order.free_twice", cuMemFree_v2(p));
    WAITS(side, "order.malloc_small", cuMemAlloc_v2(&p, 1000));
    cuMemFree_v2(p);
    WAITS(side, "order.malloc_large", cuMemAlloc_v2(&p, 64 * MIB));
    cuMemFree_v2(p);
    WAITS(side, "order.malloc_out_of_memory", cuMemAlloc_v2(&q, (size_t)1 << 44));
    WAITS(side, "order.malloc_pitch", cuMemAllocPitch_v2(&p, &pitch, 5000, 5000, 4));
    cuMemFree_v2(p);
    WAITS(side, "order.malloc_managed", cuMemAllocManaged(&p, 4 * MIB, 1));
    WAITS(side, "order.free_managed", cuMemFree_v2(p));
    WAITS(side, "order.host_alloc", cuMemHostAlloc(&host, 4 * MIB, 0));
    WAITS(side, "order.free_host", cuMemFreeHost(host));
    host = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WAITS(side, "order.host_register", cuMemHostRegister_v2(host, 65536, 0));
    WAITS(side, "order.host_unregister", cuMemHostUnregister(host));
    WAITS(side, "order.mem_get_info", cuMemGetInfo_v2(&available, &total));
    CUarray array = NULL;
    ArrayDescriptor descriptor = {256, 256, 0x20, 1};
    WAITS(side, "order.array_create", cuArrayCreate_v2(&array, &descriptor));
    WAITS(side, "order.array_destroy", cuArrayDestroy(array));
}

static void streams(CUstream side, CUstream blocking) {
    CUstream made = NULL;
    CUevent event = NULL;
    CUdeviceptr p = device_memory(1 * MIB);
    static char buffer[4096];
    void *pinned = NULL;
    cuMemHostAlloc(&pinned, 4096, 0);
    WAITS(side, "order.stream_create", cuStreamCreate(&made, 1));
    WAITS(side, "order.stream_destroy_idle", cuStreamDestroy_v2(made));
    WAITS(side, "order.event_create", cuEventCreate(&event, 2));
    WAITS(side, "order.event_destroy", cuEventDestroy_v2(event));
    WAITS(side, "order.context_synchronize", cuCtxSynchronize());
    WAITS(side, "order.stream_synchronize.same", cuStreamSynchronize(side));
    WAITS(side, "order.stream_synchronize.legacy_for_side", cuStreamSynchronize(LEGACY));
    WAITS(blocking, "order.stream_synchronize.legacy_for_blocking", cuStreamSynchronize(LEGACY));
    WAITS(PER_THREAD, "order.stream_synchronize.legacy_for_per_thread", cuStreamSynchronize(LEGACY));
    WAITS(LEGACY, "order.stream_synchronize.blocking_for_legacy", cuStreamSynchronize(blocking));
    WAITS(LEGACY, "order.stream_synchronize.side_for_legacy", cuStreamSynchronize(side));
    WAITS(LEGACY, "order.stream_synchronize.per_thread_for_legacy", cuStreamSynchronize(PER_THREAD));
    WAITS(side, "order.stream_query.same", cuStreamQuery(side));
    WAITS(blocking, "order.stream_query.legacy_for_blocking", cuStreamQuery(LEGACY));
    WAITS(side, "order.stream_query.legacy_for_side", cuStreamQuery(LEGACY));
    WAITS(side, "order.copy_to_device.side", cuMemcpyHtoD_v2(p, buffer, sizeof buffer));
    WAITS(blocking, "order.copy_to_device.blocking", cuMemcpyHtoD_v2(p, buffer, sizeof buffer));
    WAITS(side, "order.copy_to_host.side", cuMemcpyDtoH_v2(buffer, p, sizeof buffer));
    WAITS(blocking, "order.copy_to_host.blocking", cuMemcpyDtoH_v2(buffer, p, sizeof buffer));
    WAITS(PER_THREAD, "order.copy_to_host.per_thread", cuMemcpyDtoH_v2(buffer, p, sizeof buffer));
    WAITS(blocking, "order.copy_on_device.blocking", cuMemcpyDtoD_v2(p, p + 4096, 4096));
    WAITS(blocking, "order.memset.blocking", cuMemsetD8_v2(p, 1, 4096));
    WAITS(side, "order.async_pinned_copy.same_stream", cuMemcpyDtoHAsync_v2(pinned, p, 4096, side));
    WAITS(side, "order.async_pageable_copy_to_host.same_stream", cuMemcpyDtoHAsync_v2(buffer, p, 4096, side));
    WAITS(side, "order.async_pageable_copy_to_device.same_stream", cuMemcpyHtoDAsync_v2(p, buffer, 4096, side));
    cuMemFreeHost(pinned);
    cuMemFree_v2(p);
}

static void virtual_memory(CUstream side) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    AccessDesc access = {{1, 0}, 3};
    CUhandle handle = 0;
    CUdeviceptr p = 0;
    WAITS(side, "order.vmm.reserve", cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
    WAITS(side, "order.vmm.create", cuMemCreate(&handle, 2 * MIB, &prop, 0));
    WAITS(side, "order.vmm.map", cuMemMap(p, 2 * MIB, 0, handle, 0));
    WAITS(side, "order.vmm.set_access", cuMemSetAccess(p, 2 * MIB, &access, 1));
    WAITS(side, "order.vmm.unmap", cuMemUnmap(p, 2 * MIB));
    WAITS(side, "order.vmm.release", cuMemRelease(handle));
    WAITS(side, "order.vmm.address_free", cuMemAddressFree(p, 2 * MIB));
}

static void pools(CUstream side) {
    CUstream other = side_stream();
    CUdeviceptr p = 0;
    CUmemoryPool pool = NULL, own = NULL;
    PoolProps props = {.type = 1, .location = {1, 0}};
    cuDeviceGetDefaultMemPool(&pool, 0);
    WAITS(side, "order.pool.alloc_same_stream", cuMemAllocAsync(&p, 1000, side));
    WAITS(side, "order.pool.free_same_stream", cuMemFreeAsync(p, side));
    WAITS(side, "order.pool.alloc_other_stream", cuMemAllocAsync(&p, 64 * MIB, other));
    WAITS(side, "order.pool.sync_free_of_async", cuMemFree_v2(p));
    WAITS(side, "order.pool.trim", cuMemPoolTrimTo(pool, 0));
    cuMemAllocAsync(&p, 1000, side);
    cuCtxSynchronize();
    WAITS(side, "order.pool.sync_free_with_work_on_its_stream", cuMemFree_v2(p));
    p = device_memory(1000);
    WAITS(side, "order.pool.async_free_of_cuMemAlloc", cuMemFreeAsync(p, side));
    /* A block freed on a busy stream: may another stream's allocation take it? The default lets the device order it. */
    CUdeviceptr q = 0;
    unsigned long long keep = ~0ull;
    cuMemPoolSetAttribute(pool, 4, &keep);
    cuMemAllocAsync(&p, 64 * MIB, side);
    cuCtxSynchronize();
    slow(side);
    cuMemFreeAsync(p, side);
    int before = slow_pending();
    CUresult result = cuMemAllocAsync(&q, 64 * MIB, side);
    number(before && p == q, "order.pool.same_stream_reuses_at_once");
    code(result, "order.pool.same_stream_reuse.code");
    cuMemFreeAsync(q, side);
    q = 0;
    cuMemAllocAsync(&q, 64 * MIB, other);
    CUevent event = plain_event();
    cuMemsetD8Async(q, 1, 4096, other);
    cuEventRecord(event, other);
    number(p == q, "order.pool.other_stream_takes_block_freed_in_flight");
    number(after_slow(event), "order.pool.other_stream_then_waits_on_device");
    cuCtxSynchronize();
    cuMemFree_v2(q);
    /* Reuse on another stream: after the free has completed, or with an event in between. */
    cuMemPoolTrimTo(pool, 0);
    cuMemAllocAsync(&p, 64 * MIB, side);
    cuMemFreeAsync(p, side);
    cuCtxSynchronize();
    cuMemAllocAsync(&q, 64 * MIB, other);
    number(p == q, "order.pool.other_stream_takes_completed_block");
    cuMemFreeAsync(q, other);
    cuCtxSynchronize();
    cuMemAllocAsync(&p, 64 * MIB, side);
    slow(side);
    cuMemFreeAsync(p, side);
    cuEventRecord(event, side);
    cuStreamWaitEvent(other, event, 0);
    cuMemAllocAsync(&q, 64 * MIB, other);
    number(p == q, "order.pool.other_stream_takes_block_behind_event");
    cuMemFreeAsync(q, other);
    cuCtxSynchronize();
    /* A pool that cannot grow: the other stream waits on the device, or the allocation fails. */
    PoolProps small = {.type = 1, .location = {1, 0}, .max_size = 64 * MIB};
    CUmemoryPool limited = NULL;
    cuMemPoolCreate(&limited, &small);
    cuMemPoolSetAttribute(limited, 4, &keep);
    p = q = 0;
    cuMemAllocFromPoolAsync(&p, 48 * MIB, limited, side);
    slow(side);
    cuMemFreeAsync(p, side);
    before = slow_pending();
    result = cuMemAllocFromPoolAsync(&q, 48 * MIB, limited, other);
    code(result, "order.pool.full_pool_block_in_flight.code");
    text(!before ? "inconclusive" : slow_pending() ? "returned at once" : "waited", "order.pool.full_pool_block_in_flight.host");
    number(p == q, "order.pool.full_pool_block_in_flight.same_address");
    if (q) cuMemsetD8Async(q, 1, 4096, other);
    cuEventRecord(event, other);
    number(after_slow(event), "order.pool.full_pool_block_in_flight.device_ordered");
    cuCtxSynchronize();
    if (q) cuMemFreeAsync(q, other);
    cuCtxSynchronize();
    cuMemPoolDestroy(limited);
    keep = 0;
    cuMemPoolSetAttribute(pool, 4, &keep);
    cuMemPoolCreate(&own, &props);
    WAITS(side, "order.pool.destroy", cuMemPoolDestroy(own));
    cuStreamDestroy_v2(other);
    cuEventDestroy_v2(event);
}

/* Does an event recorded on `on` complete only after slow work on `busy`? */
static void covers(const char *name, CUstream busy, CUstream on) {
    CUevent event = plain_event();
    slow(busy);
    cuEventRecord(event, on);
    number(after_slow(event), "order.event.%s", name);
    cuCtxSynchronize();
    cuEventDestroy_v2(event);
}

/* Does a set on `later` begin only after slow work on `busy`, with no explicit ordering? */
static void implicit(const char *name, CUstream busy, CUstream later, CUdeviceptr p) {
    CUevent event = plain_event();
    slow(busy);
    cuMemsetD8Async(p, 1, 4096, later);
    cuEventRecord(event, later);
    number(after_slow(event), "order.implicit.%s", name);
    cuCtxSynchronize();
    cuEventDestroy_v2(event);
}

static void event_codes(CUstream side) {
    CUevent e = NULL, timed = NULL, timed2 = NULL, unused = NULL;
    float ms = -1;
    code(cuEventCreate(&e, 0x100), "event.bad_flags");
    code(cuEventCreate(NULL, 0), "event.nowhere");
    code(cuEventCreate(&e, 4), "event.interprocess_with_timing");
    code(cuEventCreate(&e, 6), "event.interprocess");
    cuEventDestroy_v2(e);
    cuEventCreate(&unused, 2);
    code(cuEventQuery(unused), "event.query_never_recorded");
    code(cuEventSynchronize(unused), "event.synchronize_never_recorded");
    code(cuStreamWaitEvent(side, unused, 0), "event.wait_never_recorded");
    code(cuStreamWaitEvent(side, unused, 0x10), "event.wait_bad_flags");
    code(cuStreamWaitEvent(side, NULL, 0), "event.wait_null");
    code(cuEventRecord(NULL, side), "event.record_null");
    code(cuEventQuery(NULL), "event.query_null");
    code(cuEventDestroy_v2(NULL), "event.destroy_null");
    cuEventCreate(&timed, 0);
    cuEventCreate(&timed2, 0);
    code(cuEventElapsedTime(&ms, timed, timed2), "event.elapsed_never_recorded");
    cuEventRecord(timed, side);
    slow(side);
    cuEventRecord(timed2, side);
    code(cuEventQuery(timed2), "event.query_pending");
    code(cuEventElapsedTime(&ms, timed, timed2), "event.elapsed_pending");
    code(cuEventDestroy_v2(unused), "event.destroy_idle");
    code(cuStreamQuery(side), "event.stream_query_pending");
    code(cuStreamQuery(NULL), "event.legacy_query_beside_side_work");
    cuCtxSynchronize();
    code(cuEventElapsedTime(&ms, timed, timed2), "event.elapsed");
    number(ms > 20 && ms < 2000, "event.elapsed_plausible");
    unused = plain_event();
    cuEventRecord(unused, side);
    cuCtxSynchronize();
    code(cuEventElapsedTime(&ms, timed, unused), "event.elapsed_without_timing");
    code(cuEventQuery(unused), "event.query_done");
    code(cuEventRecordWithFlags(unused, side, 0), "event.record_with_flags_0");
    code(cuEventRecordWithFlags(unused, side, 1), "event.record_external_outside_capture");
    /* An event recorded again answers for the newest record. */
    cuEventRecord(unused, side);
    cuCtxSynchronize();
    slow(side);
    cuEventRecord(unused, side);
    code(cuEventQuery(unused), "event.recorded_again_pending");
    /* Destroying a pending event returns at once and cancels nothing. */
    WAITS(side, "event.destroy_pending", cuEventDestroy_v2(unused));

    CUstream s = NULL;
    unsigned flags = 99;
    int priority = 99;
    CUcontext context = NULL, current = NULL;
    code(cuStreamCreate(&s, 0x10), "stream.bad_flags");
    code(cuStreamCreate(NULL, 0), "stream.nowhere");
    code(cuStreamCreateWithPriority(&s, 1, -100), "stream.priority_beyond");
    code(cuStreamGetPriority(s, &priority), "stream.priority_beyond.get");
    number(priority, "stream.priority_beyond.clamped");
    code(cuStreamGetFlags(s, &flags), "stream.flags.code");
    number(flags, "stream.flags");
    code(cuStreamGetCtx(s, &context), "stream.context.code");
    cuCtxGetCurrent(&current);
    number(context == current, "stream.context.current");
    unsigned long long id0 = 0, id1 = 0, id2 = 0, id3 = 0;
    cuStreamGetId(NULL, &id0), cuStreamGetId(LEGACY, &id1), cuStreamGetId(PER_THREAD, &id2), cuStreamGetId(s, &id3);
    number(id0 == id1, "stream.id.null_is_legacy");
    number(id1 != id2 && id2 != id3, "stream.id.distinct");
    slow(s);
    int before = slow_pending();
    CUresult result = cuStreamDestroy_v2(s);
    number(before && slow_pending(), "stream.destroy_busy.returns_at_once");
    code(result, "stream.destroy_busy.code");
    cuCtxSynchronize();
    number(!slow_pending(), "stream.destroy_busy.work_still_done");
    code(cuStreamDestroy_v2(NULL), "stream.destroy_null");
    code(cuStreamDestroy_v2(LEGACY), "stream.destroy_legacy");
}

static void nap(void *unused) {
    (void)unused;
    usleep(100000);
}

static void host_function(CUstream side) {
    CUevent done = plain_event();
    CUdeviceptr p = device_memory(1000);
    code(cuLaunchHostFunc(side, nap, NULL), "order.host_function.launch");
    cuEventRecord(done, side);
    int before = cuEventQuery(done) == NOT_READY;
    cuMemFree_v2(p);
    text(!before ? "inconclusive" : cuEventQuery(done) == NOT_READY ? "returned at once" : "waited", "order.host_function.free");
    cuCtxSynchronize();
    cuEventDestroy_v2(done);
}

static void two_contexts(CUcontext base, CUstream side) {
    CUcontext other = NULL;
    CUdeviceptr p = device_memory(1000), q = 0;
    cuCtxCreate_v2(&other, 0, 0);
    CUstream theirs = side_stream();
    CUevent event = plain_event();
    cuMemAlloc_v2(&q, 1000);
    /* Slow work in the other context, free and synchronise in ours. */
    slow(theirs);
    cuCtxSetCurrent(base);
    int before = slow_pending();
    cuMemFree_v2(p);
    text(!before ? "inconclusive" : slow_pending() ? "returned at once" : "waited", "order.two_contexts.free_in_mine_with_work_in_other");
    cuCtxSetCurrent(other);
    cuCtxSynchronize();
    slow(theirs);
    cuCtxSetCurrent(base);
    before = slow_pending();
    cuCtxSynchronize();
    text(!before ? "inconclusive" : slow_pending() ? "returned at once" : "waited", "order.two_contexts.synchronize_mine_with_work_in_other");
    cuCtxSetCurrent(other);
    cuCtxSynchronize();
    slow(theirs);
    cuCtxSetCurrent(base);
    before = slow_pending();
    cuMemFree_v2(q);
    text(!before ? "inconclusive" : slow_pending() ? "returned at once" : "waited", "order.two_contexts.free_of_others_pointer_with_its_work");
    cuCtxSetCurrent(other);
    cuCtxSynchronize();
    cuCtxSetCurrent(base);
    code(cuEventRecord(event, side), "order.two_contexts.record_others_event");
    cuCtxSetCurrent(other);
    cuEventRecord(event, theirs);
    cuCtxSetCurrent(base);
    code(cuStreamWaitEvent(side, event, 0), "order.two_contexts.wait_for_others_event");
    code(cuEventQuery(event) == NOT_READY ? 0 : cuEventQuery(event), "order.two_contexts.query_others_event");
    code(cuStreamQuery(theirs) == NOT_READY ? 0 : cuStreamQuery(theirs), "order.two_contexts.query_others_stream");
    code(cuMemsetD8Async(device_memory(64), 1, 16, theirs), "order.two_contexts.work_on_others_stream");
    cuCtxSetCurrent(other);
    slow(theirs);
    before = slow_pending();
    code(cuCtxDestroy_v2(other), "order.two_contexts.destroy_busy.code");
    cuCtxSetCurrent(base);
}

void section_order(void) {
    CUcontext context = start();
    CUstream side = side_stream(), second = side_stream(), blocking = NULL;
    cuStreamCreate(&blocking, 0);
    CUdeviceptr p = device_memory(4096);
    frees(context, side, blocking);
    streams(side, blocking);
    virtual_memory(side);
    pools(side);
    covers("same_stream", side, side);
    covers("side_to_side", side, second);
    covers("legacy_covers_side", side, LEGACY);
    covers("legacy_covers_blocking", blocking, LEGACY);
    covers("legacy_covers_per_thread", PER_THREAD, LEGACY);
    covers("blocking_covers_legacy", LEGACY, blocking);
    covers("side_covers_legacy", LEGACY, side);
    covers("per_thread_covers_legacy", LEGACY, PER_THREAD);
    covers("per_thread_covers_blocking", blocking, PER_THREAD);
    implicit("legacy_after_side", side, LEGACY, p);
    implicit("legacy_after_blocking", blocking, LEGACY, p);
    implicit("legacy_after_per_thread", PER_THREAD, LEGACY, p);
    implicit("blocking_after_legacy", LEGACY, blocking, p);
    implicit("per_thread_after_legacy", LEGACY, PER_THREAD, p);
    implicit("side_after_legacy", LEGACY, side, p);
    implicit("per_thread_after_blocking", blocking, PER_THREAD, p);
    event_codes(side);
    host_function(side);
    two_contexts(context, side);
}

/* Context events. */
static void context_event_covers(const char *name, CUcontext context, CUstream busy) {
    CUevent event = plain_event();
    slow(busy);
    int before = slow_pending();
    CUresult result = cuCtxRecordEvent(context, event);
    text(!before ? "inconclusive" : slow_pending() ? "returned at once" : "waited", "ctxevent.record.%s.host", name);
    code(result, "ctxevent.record.%s.code", name);
    number(after_slow(event), "ctxevent.covers.%s", name);
    cuCtxSynchronize();
    cuEventDestroy_v2(event);
}

static void context_wait_orders(const char *name, CUcontext context, CUstream busy, CUstream later, CUdeviceptr p) {
    CUevent event = plain_event(), done = plain_event();
    CUstream fresh = NULL;
    slow(busy);
    int before = slow_pending();
    cuCtxRecordEvent(context, event);
    CUresult result = cuCtxWaitEvent(context, event);
    if (!later) fresh = later = side_stream();
    cuMemsetD8Async(p, 1, 4096, later);
    cuEventRecord(done, later);
    text(!before ? "inconclusive" : slow_pending() ? "runs on" : "waited", "ctxevent.wait.%s.host", name);
    code(result, "ctxevent.wait.%s.code", name);
    number(after_slow(done), "ctxevent.wait.%s.later_work_ordered", name);
    cuCtxSynchronize();
    if (fresh) cuStreamDestroy_v2(fresh);
    cuEventDestroy_v2(event), cuEventDestroy_v2(done);
}

static CUdeviceptr shared_memory;
static CUcontext shared_context;
static CUevent thread_event;
static void *other_thread(void *unused) {
    cuCtxSetCurrent(shared_context);
    cuMemsetD8Async(shared_memory, 1, 4096, PER_THREAD);
    cuEventRecord(thread_event, PER_THREAD);
    return unused;
}

static void context_wait_reaches_other_threads(CUstream busy) {
    CUevent event = plain_event();
    pthread_t thread;
    thread_event = plain_event();
    slow(busy);
    cuCtxRecordEvent(shared_context, event);
    cuCtxWaitEvent(shared_context, event);
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);
    number(after_slow(thread_event), "ctxevent.wait.other_threads_per_thread_stream.later_work_ordered");
    cuCtxSynchronize();
}

void section_ctxevent(void) {
    CUcontext context = shared_context = start(), other = NULL;
    CUstream side = side_stream(), second = side_stream(), blocking = NULL;
    cuStreamCreate(&blocking, 0);
    CUdeviceptr p = shared_memory = device_memory(4096);
    context_event_covers("side", context, side);
    context_event_covers("blocking", context, blocking);
    context_event_covers("legacy", context, LEGACY);
    context_event_covers("per_thread", context, PER_THREAD);
    context_wait_orders("side", context, side, second, p);
    context_wait_orders("same_stream", context, side, side, p);
    context_wait_orders("fresh_stream", context, side, NULL, p);
    context_wait_orders("legacy", context, side, LEGACY, p);
    context_wait_orders("blocking", context, side, blocking, p);
    context_wait_orders("per_thread", context, side, PER_THREAD, p);
    context_wait_orders("legacy_busy_side_later", context, LEGACY, side, p);
    context_wait_reaches_other_threads(side);

    /* Work submitted before the wait is not ordered by it. */
    CUevent event = plain_event(), early = plain_event();
    slow(side);
    cuCtxRecordEvent(context, event);
    cuMemsetD8Async(p, 1, 4096, second);
    cuEventRecord(early, second);
    cuCtxWaitEvent(context, event);
    number(after_slow(early), "ctxevent.wait.earlier_work_held_back");
    cuCtxSynchronize();
    /* Copies from the host and synchronous sets after the wait. */
    char byte = 0;
    slow(side);
    cuCtxRecordEvent(context, event);
    cuCtxWaitEvent(context, event);
    int before = slow_pending();
    cuMemcpyDtoH_v2(&byte, p, 1);
    text(!before ? "inconclusive" : slow_pending() ? "returned at once" : "waited", "ctxevent.wait.synchronous_copy");
    cuCtxSynchronize();
    /* An ordinary event as the thing to wait for; a context event waited for by one stream. */
    CUevent done = plain_event();
    slow(side);
    cuEventRecord(event, side);
    cuCtxWaitEvent(context, event);
    cuMemsetD8Async(p, 1, 4096, second);
    cuEventRecord(done, second);
    number(after_slow(done), "ctxevent.wait.for_stream_event.later_work_ordered");
    cuCtxSynchronize();
    slow(side);
    cuCtxRecordEvent(context, event);
    cuStreamWaitEvent(second, event, 0);
    cuMemsetD8Async(p, 1, 4096, second);
    cuEventRecord(done, second);
    number(after_slow(done), "ctxevent.stream_waits_for_context_event");
    cuCtxSynchronize();

    CUevent unused = plain_event(), timed = NULL;
    cuEventCreate(&timed, 0);
    code(cuCtxRecordEvent(NULL, event), "ctxevent.record_null_context");
    code(cuCtxWaitEvent(NULL, event), "ctxevent.wait_null_context");
    code(cuCtxRecordEvent(context, NULL), "ctxevent.record_null_event");
    code(cuCtxWaitEvent(context, NULL), "ctxevent.wait_null_event");
    code(cuCtxWaitEvent(context, unused), "ctxevent.wait_never_recorded");
    code(cuCtxRecordEvent(context, timed), "ctxevent.record_timed_event");
    code(cuCtxWaitEvent(context, timed), "ctxevent.wait_timed_event");
    cuCtxCreate_v2(&other, 0, 0);
    CUevent theirs = plain_event();
    code(cuCtxRecordEvent(context, theirs), "ctxevent.record_in_mine_others_event");
    code(cuCtxRecordEvent(other, theirs), "ctxevent.record_in_other");
    cuCtxSetCurrent(context);
    code(cuCtxWaitEvent(context, theirs), "ctxevent.wait_in_mine_for_others_event");
    code(cuCtxRecordEvent(other, theirs), "ctxevent.record_in_other_while_mine_current");
    code(cuCtxWaitEvent(other, event), "ctxevent.wait_in_other_for_my_event");
    cuCtxSetCurrent(NULL);
    code(cuCtxRecordEvent(context, event), "ctxevent.record_without_current");
    code(cuCtxWaitEvent(context, event), "ctxevent.wait_without_current");
    code(cuEventQuery(event) == NOT_READY ? 0 : cuEventQuery(event), "ctxevent.query_without_current");
    cuCtxSetCurrent(context);
    /* Does my context's event cover the other context's work, and is other's work held back by my wait? */
    cuCtxSetCurrent(other);
    CUstream their_stream = side_stream();
    slow(their_stream);
    cuCtxRecordEvent(context, event);
    number(after_slow(event), "ctxevent.covers.other_context");
    cuCtxSynchronize();
    CUdeviceptr q = device_memory(4096);
    cuCtxSetCurrent(context);
    slow(side);
    cuCtxRecordEvent(context, event);
    cuCtxWaitEvent(context, event);
    cuCtxSetCurrent(other);
    CUevent their_done = plain_event();
    cuMemsetD8Async(q, 1, 4096, their_stream);
    cuEventRecord(their_done, their_stream);
    number(after_slow(their_done), "ctxevent.wait.other_context.later_work_ordered");
    cuCtxSetCurrent(context);
    cuCtxSynchronize();
    slow(side);
    cuCtxRecordEvent(context, event);
    code(cuCtxWaitEvent(other, event), "ctxevent.wait_across.code");
    cuCtxSetCurrent(other);
    cuMemsetD8Async(q, 1, 4096, their_stream);
    cuEventRecord(their_done, their_stream);
    number(after_slow(their_done), "ctxevent.wait_across.later_work_ordered");
    cuCtxSynchronize();
}

/* Stream-ordered allocation and its pools. */
#include "conformance.h"
#include <stdio.h>
#include <string.h>

static const char *const names[] = {"", "REUSE_FOLLOW_EVENT_DEPENDENCIES", "REUSE_ALLOW_OPPORTUNISTIC", "REUSE_ALLOW_INTERNAL_DEPENDENCIES",
                                    "RELEASE_THRESHOLD", "RESERVED_MEM_CURRENT", "RESERVED_MEM_HIGH", "USED_MEM_CURRENT", "USED_MEM_HIGH"};

static void attributes(CUmemoryPool pool, const char *when, int first) {
    for (int a = first; a <= 8; a++) {
        unsigned long long value = 0;
        CUresult result = cuMemPoolGetAttribute(pool, a, &value);
        if (result) code(result, "pool.%s.%s", when, names[a]);
        else if (a < 4) number((int)value, "pool.%s.%s", when, names[a]);
        else if (value == ~0ull) text("max", "pool.%s.%s", when, names[a]);
        else number((long long)value, "pool.%s.%s", when, names[a]);
    }
}

static void codes(CUmemoryPool pool) {
    CUdeviceptr p = 77, begin = 0;
    size_t size = 0;
    unsigned long long value = 1;
    int flags = 99;
    Location device = {1, 0}, host = {2, 0}, bad = {1, 99};
    AccessDesc both = {{1, 0}, 3}, none = {{1, 0}, 0}, far = {{1, 99}, 3};
    code(cuMemAllocAsync(&p, 0, NULL), "async.alloc.zero");
    number(p == 77 ? 77 : p != 0, "async.alloc.zero.pointer_was_77");
    p = 77;
    code(cuMemAllocAsync(NULL, 16, NULL), "async.alloc.nowhere");
    code(cuMemAllocAsync(&p, (size_t)1 << 44, NULL), "async.alloc.16TiB");
    number(p == 77 ? 77 : p != 0, "async.alloc.16TiB.pointer_was_77");
    code(cuMemAllocAsync(&p, ~(size_t)0, NULL), "async.alloc.size_max");
    code(cuMemAllocFromPoolAsync(&p, 16, NULL, NULL), "async.alloc.null_pool");
    code(cuMemFreeAsync(0, NULL), "async.free.null");
    code(cuMemFreeAsync(4096, NULL), "async.free.unknown");
    cuMemAllocAsync(&p, 1000, NULL);
    cuStreamSynchronize(NULL);
    code(cuMemGetAddressRange_v2(&begin, &size, p + 100), "async.range.code");
    number((long long)(p + 100 - begin), "async.range.offset");
    number((long long)size, "async.range.size_of_1000");
    code(cuMemFreeAsync(p + 512, NULL), "async.free.interior");
    code(cuMemFreeAsync(p, NULL), "async.free.once");
    code(cuMemFreeAsync(p, NULL), "async.free.twice");
    code(cuMemFree_v2(p), "async.free.twice_by_cuMemFree");
    cuStreamSynchronize(NULL);
    cuMemAllocAsync(&p, 1000, NULL);
    code(cuMemFree_v2(p), "async.freed_by_cuMemFree");
    code(cuMemFree_v2(p), "async.freed_by_cuMemFree_twice");
    code(cuMemFreeAsync(p, NULL), "async.freed_by_cuMemFree_then_async");
    cuMemAlloc_v2(&p, 1000);
    code(cuMemFreeAsync(p, NULL), "async.free_of_cuMemAlloc");
    /* Before the stream has come to it, cuMemFree would succeed too, and corrupt the real driver. */
    cuStreamSynchronize(NULL);
    code(cuMemFree_v2(p), "async.free_of_cuMemAlloc_then_cuMemFree");
    code(cuMemPoolGetAttribute(pool, 99, &value), "pool.get.bad_attribute");
    code(cuMemPoolGetAttribute(NULL, 4, &value), "pool.get.null_pool");
    code(cuMemPoolGetAttribute(pool, 4, NULL), "pool.get.nowhere");
    code(cuMemPoolSetAttribute(pool, 5, &value), "pool.set.reserved_current");
    code(cuMemPoolSetAttribute(pool, 6, &value), "pool.set.reserved_high_to_1");
    value = 0;
    code(cuMemPoolSetAttribute(pool, 6, &value), "pool.set.reserved_high_to_0");
    code(cuMemPoolSetAttribute(pool, 7, &value), "pool.set.used_current");
    code(cuMemPoolSetAttribute(pool, 8, &value), "pool.set.used_high_to_0");
    code(cuMemPoolGetAccess(&flags, pool, &device), "pool.access.own_device.code");
    number(flags, "pool.access.own_device");
    code(cuMemPoolGetAccess(&flags, pool, &host), "pool.access.host.code");
    code(cuMemPoolGetAccess(&flags, pool, &bad), "pool.access.bad_device");
    code(cuMemPoolSetAccess(pool, &both, 1), "pool.set_access.own_both");
    code(cuMemPoolSetAccess(pool, &none, 1), "pool.set_access.own_none");
    code(cuMemPoolSetAccess(pool, &far, 1), "pool.set_access.bad_device");
    code(cuMemPoolDestroy(pool), "pool.destroy_default");
    code(cuMemPoolDestroy(NULL), "pool.destroy_null");
    code(cuMemPoolTrimTo(NULL, 0), "pool.trim_null");
    int fd = -1;
    code(cuMemPoolExportToShareableHandle(&fd, pool, 1, 0), "pool.export_default");
    char data[64];
    cuMemAllocAsync(&p, 1000, NULL);
    code(cuMemPoolExportPointer(data, p), "pool.export_pointer_of_default");
    IpcHandle handle;
    code(cuIpcGetMemHandle(&handle, p), "async.ipc_handle");
    cuMemFreeAsync(p, NULL);
    cuStreamSynchronize(NULL);
}

static void accounting(CUmemoryPool pool) {
    static const size_t sizes[] = {1, 512, 513, 100000, MIB, 2 * MIB, 2 * MIB + 1, 5 * MIB, 31 * MIB, 32 * MIB, 33 * MIB, 100 * MIB};
    CUstream s = side_stream();
    unsigned long long zero = 0, used = 0, reserved = 0, all = ~0ull;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CUdeviceptr p = 0;
        cuMemPoolTrimTo(pool, 0);
        cuMemAllocAsync(&p, sizes[i], s);
        cuStreamSynchronize(s);
        cuMemPoolGetAttribute(pool, 7, &used);
        cuMemPoolGetAttribute(pool, 5, &reserved);
        number((long long)used, "pool.accounting.%zu.used", sizes[i]);
        number((long long)reserved, "pool.accounting.%zu.reserved", sizes[i]);
        cuMemFreeAsync(p, s);
        cuMemPoolGetAttribute(pool, 7, &used);
        number((long long)used, "pool.accounting.%zu.used_after_free_call", sizes[i]);
        cuStreamSynchronize(s);
        cuMemPoolGetAttribute(pool, 7, &used);
        cuMemPoolGetAttribute(pool, 5, &reserved);
        number((long long)used, "pool.accounting.%zu.used_after_synchronize", sizes[i]);
        number((long long)reserved, "pool.accounting.%zu.reserved_after_synchronize", sizes[i]);
    }
    /* Spacing of small blocks. */
    CUdeviceptr p[8], nearest = ~0ull;
    for (int i = 0; i < 8; i++) p[i] = 0, cuMemAllocAsync(&p[i], 1, s);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            if (p[i] > p[j] && p[i] - p[j] < nearest) nearest = p[i] - p[j];
    number((long long)nearest, "pool.accounting.1_byte_distance");
    for (int i = 0; i < 8; i++) cuMemFreeAsync(p[i], s);
    cuStreamSynchronize(s);
    /* Threshold: when is memory given back? */
    static const struct { const char *name; unsigned long long threshold; } kept[] = {{"threshold_0", 0}, {"threshold_max", ~0ull}, {"threshold_48MiB", 48 * MIB}};
    for (int i = 0; i < 3; i++) {
        CUdeviceptr a = 0, b = 0;
        cuMemPoolTrimTo(pool, 0);
        cuMemPoolSetAttribute(pool, 4, (void *)&kept[i].threshold);
        cuMemAllocAsync(&a, 64 * MIB, s);
        cuMemAllocAsync(&b, 64 * MIB, s);
        cuMemFreeAsync(a, s);
        cuMemFreeAsync(b, s);
        cuMemPoolGetAttribute(pool, 5, &reserved);
        number((long long)(reserved / MIB), "pool.%s.reserved_MiB_after_free_call", kept[i].name);
        cuStreamSynchronize(s);
        cuMemPoolGetAttribute(pool, 5, &reserved);
        number((long long)(reserved / MIB), "pool.%s.reserved_MiB_after_stream_synchronize", kept[i].name);
        cuCtxSynchronize();
        cuMemPoolGetAttribute(pool, 5, &reserved);
        number((long long)(reserved / MIB), "pool.%s.reserved_MiB_after_context_synchronize", kept[i].name);
    }
    CUdeviceptr a = 0, b = 0;
    cuMemPoolSetAttribute(pool, 4, &all);
    cuMemPoolTrimTo(pool, 0);
    size_t before = free_memory();
    cuMemAllocAsync(&a, 64 * MIB, s);
    number((long long)(before - free_memory()) / (long long)MIB, "pool.info.taken_MiB");
    cuMemFreeAsync(a, s);
    cuStreamSynchronize(s);
    number((long long)(before - free_memory()) / (long long)MIB, "pool.info.kept_MiB_threshold_max");
    cuMemAllocAsync(&b, 64 * MIB, s);
    number(a == b, "pool.reuse.same_address");
    cuMemFreeAsync(b, s);
    code(cuMemPoolTrimTo(pool, 0), "pool.trim_right_after_free_call.code");
    cuMemPoolGetAttribute(pool, 5, &reserved);
    number((long long)(reserved / MIB), "pool.trim_right_after_free_call.reserved_MiB");
    cuCtxSynchronize();
    code(cuMemPoolTrimTo(pool, 0), "pool.trim.code");
    cuMemPoolGetAttribute(pool, 5, &reserved);
    number((long long)(reserved / MIB), "pool.trim.reserved_MiB");
    number((long long)(before - free_memory()) / (long long)MIB, "pool.trim.kept_MiB");
    cuMemPoolSetAttribute(pool, 4, &zero);
    /* Work submitted on a freed address, and a free that does not wait. */
    cuMemAllocAsync(&a, 4096, s);
    code(cuMemsetD8Async(a, 5, 4096, s), "async.use.same_stream");
    unsigned char byte = 0;
    cuStreamSynchronize(s);
    cuMemcpyDtoH_v2(&byte, a + 4095, 1);
    number(byte, "async.use.byte");
    code(cuMemFreeAsync(a, LEGACY), "async.free.on_other_stream");
    cuCtxSynchronize();
    cuStreamDestroy_v2(s);
}

static void own_pools(CUmemoryPool standard) {
    PoolProps props = {.type = 1, .location = {1, 0}};
    CUmemoryPool pool = NULL, got = NULL;
    CUdeviceptr p = 0;
    code(cuMemPoolCreate(NULL, &props), "pool.create.nowhere");
    code(cuMemPoolCreate(&pool, NULL), "pool.create.no_props");
    static const struct { const char *name; PoolProps props; } odd[] = {
        {"type_0", {.type = 0, .location = {1, 0}}}, {"bad_device", {.type = 1, .location = {1, 99}}}, {"location_0", {.type = 1, .location = {0, 0}}},
        {"host", {.type = 1, .location = {2, 0}}},   {"host_numa", {.type = 1, .location = {3, 0}}},   {"posix_fd", {.type = 1, .handles = 1, .location = {1, 0}}},
        {"max_64MiB", {.type = 1, .location = {1, 0}, .max_size = 64 * MIB}}, {"managed", {.type = 2, .location = {1, 0}}}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        CUmemoryPool made = NULL;
        CUresult result = cuMemPoolCreate(&made, &odd[i].props);
        code(result, "pool.create.%s", odd[i].name);
        if (result) continue;
        if (odd[i].props.max_size) {
            CUdeviceptr a = 0, b = 0;
            code(cuMemAllocFromPoolAsync(&a, 48 * MIB, made, NULL), "pool.max_size.48MiB");
            code(cuMemAllocFromPoolAsync(&b, 48 * MIB, made, NULL), "pool.max_size.beyond");
            if (a) cuMemFreeAsync(a, NULL);
            if (b) cuMemFreeAsync(b, NULL);
        }
        int fd = -1;
        if (odd[i].props.handles) code(cuMemPoolExportToShareableHandle(&fd, made, 1, 0), "pool.export.posix_fd");
        cuMemPoolDestroy(made);
    }
    code(cuMemPoolCreate(&pool, &props), "pool.create.code");
    attributes(pool, "created", 1);
    code(cuMemAllocFromPoolAsync(&p, 1000, pool, NULL), "pool.own.alloc");
    unsigned long long used = 0;
    cuMemPoolGetAttribute(pool, 7, &used);
    number((long long)used, "pool.own.used");
    CUmemoryPool of = NULL;
    code(cuPointerGetAttribute(&of, 17, p), "pool.own.pointer_pool.code");
    number(of == pool, "pool.own.pointer_pool");
    code(cuMemFreeAsync(p, NULL), "pool.own.free");
    code(cuDeviceSetMemPool(0, pool), "pool.current.set");
    code(cuDeviceGetMemPool(&got, 0), "pool.current.get");
    number(got == pool, "pool.current.is_own");
    cuDeviceGetDefaultMemPool(&got, 0);
    number(got == standard, "pool.default.unchanged");
    cuMemAllocAsync(&p, 1000, NULL);
    of = NULL;
    cuPointerGetAttribute(&of, 17, p);
    number(of == pool, "pool.current.serves_cuMemAllocAsync");
    Location device = {1, 0}, host = {2, 0};
    code(cuMemGetMemPool(&got, &device, 1), "pool.location.get.code");
    number(got == pool, "pool.location.get.is_own");
    code(cuMemGetDefaultMemPool(&got, &device, 1), "pool.location.default.code");
    number(got == standard, "pool.location.default.is_default");
    code(cuMemGetDefaultMemPool(&got, &host, 1), "pool.location.host.code");
    code(cuMemSetMemPool(&device, 1, standard), "pool.location.set.code");
    cuDeviceGetMemPool(&got, 0);
    number(got == standard || cuMemSetMemPool(&device, 1, standard) == MISSING, "pool.location.set.seen_by_device_get");
    cuDeviceSetMemPool(0, pool);
    /* Destroying the current pool with a live allocation. */
    code(cuMemPoolDestroy(pool), "pool.destroy.with_live_block");
    cuDeviceGetMemPool(&got, 0);
    number(got == standard, "pool.destroy.current_is_default_again");
    code(cuMemsetD8_v2(p, 1, 16), "pool.destroy.block_still_usable");
    code(cuMemFreeAsync(p, NULL), "pool.destroy.block_freed");
    code(cuDeviceSetMemPool(0, NULL), "pool.current.set_null");
    code(cuDeviceSetMemPool(99, standard), "pool.current.set_bad_device");
    code(cuDeviceGetMemPool(&got, 99), "pool.current.get_bad_device");
    code(cuDeviceGetDefaultMemPool(NULL, 0), "pool.default.nowhere");
    cuStreamSynchronize(NULL);
}

static void second_context(CUcontext base) {
    CUcontext other = NULL, owner = NULL;
    CUdeviceptr p = 0;
    cuCtxCreate_v2(&other, 0, 0);
    code(cuMemAllocAsync(&p, 1000, NULL), "async.second_context.alloc");
    cuPointerGetAttribute(&owner, 1, p);
    text(owner == other ? "other" : owner == base ? "primary" : owner ? "third" : "null", "async.second_context.owner");
    cuCtxSetCurrent(base);
    code(cuMemFreeAsync(p, NULL), "async.second_context.free_in_primary");
    cuCtxSynchronize();
    /* Destroying the context while a block from it is live crashes the real driver later: not tried. */
    cuCtxSetCurrent(other);
    cuCtxSynchronize();
    code(cuCtxDestroy_v2(other), "async.second_context.destroy");
    cuCtxSetCurrent(base);
    cuCtxSynchronize();
}

void section_pool(void) {
    CUcontext context = start();
    CUmemoryPool standard = NULL, current = NULL;
    int supported = -1;
    code(cuDeviceGetAttribute(&supported, 115, 0), "pool.supported.code");
    number(supported, "pool.supported");
    code(cuDeviceGetDefaultMemPool(&standard, 0), "pool.default.code");
    code(cuDeviceGetMemPool(&current, 0), "pool.current.code");
    number(standard == current, "pool.current_is_default");
    attributes(standard, "at_start", 1);
    accounting(standard);
    codes(standard);
    attributes(standard, "at_end", 7);
    own_pools(standard);
    second_context(context);
}

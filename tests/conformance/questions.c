/* What the driver answers about an address that a function of another family is asked about: cuMemAlloc memory where mapped,
 * managed or host memory is expected. Nothing here may have an effect: contents are compared at the end. */
#include "conformance.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGE (2 * MIB)

/* Each function with an address and the bytes from there on that a caller would name. */
void questions_of(const char *where, CUdeviceptr p, size_t bytes) {
    CUdeviceptr page = p & ~(CUdeviceptr)(PAGE - 1), begin = 0, other = 0;
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    AccessDesc none = {{1, 0}, 0}, both = {{1, 0}, 3};
    CUcontext context = NULL;
    CUhandle handle = 0, own = 0;
    unsigned long long flags = 77;
    unsigned host_flags = 0, on = 1;
    size_t size = 0;
    int fd = -1;
    char share[64], data[8];
    IpcHandle ipc;
    cuCtxGetCurrent(&context);
    CUresult result = cuMemGetAddressRange_v2(&begin, &size, p);
    code(result, "question.%s.range.code", where);
    if (!result) number((long long)(p - begin), "question.%s.range.offset", where);
    if (!result) number((long long)size, "question.%s.range.size", where);
    result = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)p);
    code(result, "question.%s.retain", where);
    if (!result) cuMemRelease(handle);
    result = cuMemGetAccess(&flags, &both.location, p);
    code(result, "question.%s.get_access.code", where);
    if (!result) number((long long)flags, "question.%s.get_access", where);
    code(cuMemSetAccess(page, PAGE, &none, 1), "question.%s.set_access", where);
    code(cuMemUnmap(page, PAGE), "question.%s.unmap", where);
    cuMemCreate(&own, PAGE, &prop, 0);
    code(cuMemMap(page, PAGE, 0, own, 0), "question.%s.map", where);
    cuMemRelease(own);
    code(cuMemAddressFree(page, PAGE), "question.%s.address_free", where);
    result = cuMemGetHandleForAddressRange(&fd, p, bytes, 1, 0);
    code(result, "question.%s.dma_buf", where);
    if (!result) close(fd);
    result = cuMemGetHandleForAddressRange(&fd, p, bytes + PAGE, 1, 0);
    code(result, "question.%s.dma_buf_too_long", where);
    if (!result) close(fd);
    code(cuMemAdvise(p, bytes, 1, 0), "question.%s.advise", where);
    code(cuMemPrefetchAsync(p, bytes, 0, NULL), "question.%s.prefetch", where);
    code(cuMemRangeGetAttribute(data, 4, 1, p, bytes), "question.%s.range_attribute", where);
    code(cuStreamAttachMemAsync(side_stream(), p, 0, 1), "question.%s.attach", where);
    code(cuMemHostRegister_v2((void *)(uintptr_t)p, bytes, 0), "question.%s.host_register", where);
    code(cuMemHostUnregister((void *)(uintptr_t)p), "question.%s.host_unregister", where);
    code(cuMemHostGetDevicePointer_v2(&other, (void *)(uintptr_t)p, 0), "question.%s.host_pointer", where);
    code(cuMemHostGetFlags(&host_flags, (void *)(uintptr_t)p), "question.%s.host_flags", where);
    code(cuMemFreeHost((void *)(uintptr_t)p), "question.%s.free_host", where);
    code(cuMemPoolExportPointer(share, p), "question.%s.pool_export", where);
    code(cuIpcGetMemHandle(&ipc, p), "question.%s.ipc_get", where);
    code(cuPointerSetAttribute(&on, 6, p), "question.%s.sync_memops", where);
    cuMemAlloc_v2(&other, PAGE);
    code(cuMemcpyPeer(other, context, p, context, 8), "question.%s.copy_peer", where);
    cuMemFree_v2(other);
}

static void fill(CUdeviceptr p, size_t bytes, unsigned char value) {
    cuMemsetD8_v2(p, value, bytes);
    cuCtxSynchronize();
}

static int is_filled(CUdeviceptr p, size_t bytes, unsigned char value) {
    unsigned char ends[2] = {0};
    cuMemcpyDtoH_v2(ends, p, 1);
    cuMemcpyDtoH_v2(ends + 1, p + bytes - 1, 1);
    return ends[0] == value && ends[1] == value;
}

void section_questions(void) {
    start();
    CUdeviceptr small = 0, next = 0, large = 0, freed = 0, async = 0;
    cuMemAlloc_v2(&small, 1000);
    cuMemAlloc_v2(&next, 1000);
    cuMemAlloc_v2(&large, 9 * MIB);
    cuMemAlloc_v2(&freed, 9 * MIB);
    cuMemAllocAsync(&async, 1000, NULL);
    fill(small, 1000, 1);
    fill(next, 1000, 2);
    fill(large, 9 * MIB, 3);
    fill(async, 1000, 4);
    cuMemFree_v2(freed);
    questions_of("small", small, 1000);
    questions_of("small_inside", small + 100, 512);
    questions_of("small_past", small + 1000, 512);
    questions_of("large", large, 9 * MIB);
    questions_of("large_inside", large + 5 * MIB, 2 * MIB);
    questions_of("large_past", large + 9 * MIB, 4096);
    questions_of("freed", freed, 9 * MIB);
    questions_of("async", async, 1000);
    number(is_filled(small, 1000, 1), "question.small_is_intact");
    number(is_filled(next, 1000, 2), "question.its_neighbour_is_intact");
    number(is_filled(large, 9 * MIB, 3), "question.large_is_intact");
    number(is_filled(async, 1000, 4), "question.async_is_intact");
    code(cuIpcCloseMemHandle(large), "question.large.ipc_close");
    code(cuMemFree_v2(small), "question.small.free");
    code(cuMemFree_v2(next), "question.neighbour.free");
    code(cuMemFree_v2(large), "question.large.free");
    code(cuMemFreeAsync(async, NULL), "question.async.free");
    cuMemAlloc_v2(&small, 1000);
    fill(small, 1000, 5);
    number(is_filled(small, 1000, 5), "question.memory_after_the_questions_works");
    cuMemFree_v2(small);
}

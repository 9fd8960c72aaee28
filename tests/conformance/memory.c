/* Allocation and free: codes, rounding, ranges; pitched, managed, host and array memory; copies and sets. */
#include "conformance.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int ascending(const void *a, const void *b) {
    CUdeviceptr x = *(const CUdeviceptr *)a, y = *(const CUdeviceptr *)b;
    return x < y ? -1 : x > y;
}

/* Smallest distance of neighbours among several allocations of this size, and their common alignment. */
static void spacing(size_t size) {
    enum { COUNT = 16 };
    CUdeviceptr p[COUNT];
    CUdeviceptr all = 0, nearest = ~0ull;
    for (int i = 0; i < COUNT; i++) {
        p[i] = 0;
        cuMemAlloc_v2(&p[i], size);
        all |= p[i];
    }
    CUdeviceptr start = 0;
    size_t range = 0;
    cuMemGetAddressRange_v2(&start, &range, p[3]);
    number((long long)range - (long long)size, "alloc.size_%zu.range_size_minus_size", size);
    qsort(p, COUNT, sizeof *p, ascending);
    for (int i = 1; i < COUNT; i++)
        if (p[i] - p[i - 1] < nearest) nearest = p[i] - p[i - 1];
    number((long long)nearest, "alloc.size_%zu.nearest_distance", size);
    CUdeviceptr low = all & -all;
    if (low > 2 * MIB) low = 2 * MIB;
    number((long long)low, "alloc.size_%zu.alignment_up_to_2MiB", size);
    for (int i = 0; i < COUNT; i++) cuMemFree_v2(p[i]);
}

static void memory_taken(size_t size, int count, const char *what) {
    CUdeviceptr p[64];
    size_t before = free_memory();
    for (int i = 0; i < count; i++) p[i] = 0, cuMemAlloc_v2(&p[i], size);
    size_t held = free_memory();
    for (int i = 0; i < count; i++) cuMemFree_v2(p[i]);
    size_t after = free_memory();
    number((long long)(before - held) / (long long)KIB, "alloc.info.%s.taken_KiB", what);
    number((long long)(before - after) / (long long)KIB, "alloc.info.%s.kept_after_free_KiB", what);
}

void section_alloc(void) {
    start();
    CUdeviceptr p = 0, q = 0, begin = 0;
    size_t size = 0, available = 0, total = 0, device_total = 0;
    char local[64];
    memory_taken(1, 1, "1_byte");
    memory_taken(1, 64, "64_times_1_byte");
    memory_taken(MIB, 1, "1MiB");
    memory_taken(MIB + 1, 1, "1MiB_and_1");
    memory_taken(2 * MIB, 1, "2MiB");
    memory_taken(2 * MIB + 1, 1, "2MiB_and_1");
    memory_taken(3 * MIB, 4, "4_times_3MiB");
    memory_taken(64 * MIB, 1, "64MiB");
    memory_taken(64 * MIB + 1, 1, "64MiB_and_1");
    memory_taken(1024 * KIB, 32, "32_times_1MiB");
    cuDeviceTotalMem_v2(&device_total, 0);
    code(cuMemGetInfo_v2(&available, &total), "alloc.info.code");
    number(total == device_total, "alloc.info.total_is_device_total");
    code(cuMemGetInfo_v2(NULL, NULL), "alloc.info.both_null");
    code(cuMemGetInfo_v2(NULL, &total), "alloc.info.free_null");
    code(cuMemGetInfo_v2(&available, NULL), "alloc.info.total_null");

    p = 77;
    code(cuMemAlloc_v2(&p, 0), "alloc.zero.code");
    number((long long)p, "alloc.zero.pointer_was_77");
    code(cuMemAlloc_v2(NULL, 16), "alloc.nowhere.code");
    p = 77;
    code(cuMemAlloc_v2(&p, (size_t)1 << 44), "alloc.16TiB.code");
    number((long long)p, "alloc.16TiB.pointer_was_77");
    p = 77;
    code(cuMemAlloc_v2(&p, ~(size_t)0), "alloc.size_max.code");
    number((long long)p, "alloc.size_max.pointer_was_77");
    p = 77;
    code(cuMemAlloc_v2(&p, total + 1), "alloc.total_and_1.code");
    number((long long)p, "alloc.total_and_1.pointer_was_77");
    code(cuMemAlloc_v2(&p, 4096), "alloc.after_out_of_memory.code");
    cuMemFree_v2(p);

    code(cuMemFree_v2(0), "free.null");
    code(cuMemFree_v2(4096), "free.small_number");
    code(cuMemFree_v2(0x7f0000000000ull), "free.unknown");
    code(cuMemFree_v2((CUdeviceptr)(uintptr_t)local), "free.stack_address");
    cuMemAlloc_v2(&p, 8192);
    code(cuMemFree_v2(p + 512), "free.interior_512");
    code(cuMemFree_v2(p + 1), "free.interior_1");
    code(cuMemFree_v2(p), "free.once");
    code(cuMemFree_v2(p), "free.twice");
    cuMemAlloc_v2(&p, 3 * MIB);
    code(cuMemFree_v2(p + 2 * MIB), "free.interior_2MiB");
    code(cuMemFree_v2(p), "free.large_once");
    code(cuMemFree_v2(p), "free.large_twice");
    cuMemAlloc_v2(&p, 4096);
    cuMemFree_v2(p);
    cuMemAlloc_v2(&q, 4096);
    number(p == q, "alloc.same_size_after_free_gets_same_address");
    cuMemFree_v2(q);

    cuMemAlloc_v2(&p, 1000);
    code(cuMemGetAddressRange_v2(&begin, &size, p), "range.base.code");
    number((long long)size, "range.base.size_of_1000");
    code(cuMemGetAddressRange_v2(&begin, &size, p + 999), "range.last.code");
    number((long long)(p - begin), "range.last.offset");
    number((long long)size, "range.last.size");
    code(cuMemGetAddressRange_v2(&begin, &size, p + 1000), "range.one_past.code");
    code(cuMemGetAddressRange_v2(&begin, &size, p + 1023), "range.in_slack.code");
    code(cuMemGetAddressRange_v2(NULL, &size, p), "range.base_null.code");
    code(cuMemGetAddressRange_v2(&begin, NULL, p), "range.size_null.code");
    code(cuMemGetAddressRange_v2(NULL, NULL, p), "range.both_null.code");
    code(cuMemGetAddressRange_v2(&begin, &size, 0), "range.null.code");
    code(cuMemGetAddressRange_v2(&begin, &size, (CUdeviceptr)(uintptr_t)local), "range.stack.code");
    cuMemFree_v2(p);
    code(cuMemGetAddressRange_v2(&begin, &size, p), "range.freed.code");
    static const size_t sizes[] = {1, 256, 512, 513, 4096, 100000, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 3 * MIB, 5 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) spacing(sizes[i]);
}

static void pitched(void) {
    static const struct { size_t width, height; unsigned element; } cases[] = {
        {1, 1, 4}, {100, 10, 4}, {512, 10, 8}, {513, 10, 16}, {1000, 1000, 4}, {0, 10, 4}, {10, 0, 4}, {10, 10, 3}, {10, 10, 0}, {10, 10, 1}, {10, 10, 2}, {10, 10, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUdeviceptr p = 0, begin = 0;
        size_t pitch = 0, size = 0;
        char name[64];
        snprintf(name, sizeof name, "pitch.%zux%zu_element%u", cases[i].width, cases[i].height, cases[i].element);
        CUresult result = cuMemAllocPitch_v2(&p, &pitch, cases[i].width, cases[i].height, cases[i].element);
        code(result, "%s.code", name);
        if (result) continue;
        number((long long)pitch, "%s.pitch", name);
        cuMemGetAddressRange_v2(&begin, &size, p);
        number((long long)size, "%s.range_size", name);
        code(cuMemFree_v2(p), "%s.free", name);
    }
    CUdeviceptr p = 0;
    size_t pitch = 0;
    code(cuMemAllocPitch_v2(NULL, &pitch, 10, 10, 4), "pitch.nowhere");
    code(cuMemAllocPitch_v2(&p, NULL, 10, 10, 4), "pitch.pitch_nowhere");
    code(cuMemAllocPitch_v2(&p, &pitch, (size_t)1 << 40, 1 << 20, 4), "pitch.huge");
}

static void managed(void) {
    CUdeviceptr p = 77, begin = 0;
    size_t size = 0;
    code(cuMemAllocManaged(&p, 0, 1), "managed.zero");
    code(cuMemAllocManaged(NULL, 16, 1), "managed.nowhere");
    code(cuMemAllocManaged(&p, 16, 0), "managed.flags_0");
    code(cuMemAllocManaged(&p, 16, 3), "managed.flags_3");
    code(cuMemAllocManaged(&p, 16, 8), "managed.flags_8");
    code(cuMemAllocManaged(&p, 16, 2), "managed.host.code");
    if (p != 77) cuMemFree_v2(p);
    code(cuMemAllocManaged(&p, 16, 4), "managed.single.code");
    p = 0;
    code(cuMemAllocManaged(&p, 10000, 1), "managed.global.code");
    if (!p) return;
    memset((void *)(uintptr_t)p, 5, 10000);
    unsigned char byte = 0;
    code(cuMemcpyDtoH_v2(&byte, p + 9999, 1), "managed.copy_to_host.code");
    number(byte, "managed.copy_to_host.byte");
    code(cuMemsetD8_v2(p, 9, 10000), "managed.memset.code");
    cuCtxSynchronize();
    number(*(unsigned char *)(uintptr_t)(p + 5000), "managed.host_reads_memset");
    code(cuMemGetAddressRange_v2(&begin, &size, p + 50), "managed.range.code");
    number((long long)size, "managed.range.size_of_10000");
    code(cuMemFreeHost((void *)(uintptr_t)p), "managed.cuMemFreeHost");
    code(cuMemFree_v2(p + 16), "managed.free_interior");
    code(cuMemFree_v2(p), "managed.free");
    code(cuMemFree_v2(p), "managed.free_twice");
    size_t before = free_memory();
    cuMemAllocManaged(&p, 64 * MIB, 1);
    number((long long)(before - free_memory()) / (long long)MIB, "managed.untouched_64MiB_takes_MiB");
    cuMemFree_v2(p);
    p = 77;
    code(cuMemAllocManaged(&p, (size_t)1 << 50, 1), "managed.huge");
}

static void host(void) {
    void *h = (void *)77, *local = NULL;
    CUdeviceptr device = 0, begin = 0;
    unsigned flags = 99;
    size_t size = 0;
    code(cuMemHostAlloc(&h, 0, 0), "host.zero.code");
    number(h == NULL ? 0 : h == (void *)77 ? 77 : 1, "host.zero.pointer_was_77");
    code(cuMemHostAlloc(NULL, 16, 0), "host.nowhere");
    code(cuMemHostAlloc(&h, 16, 0x100), "host.bad_flags");
    code(cuMemHostAlloc(&h, (size_t)1 << 55, 0), "host.huge");
    code(cuMemHostAlloc(&h, 1000, 0), "host.alloc");
    code(cuMemHostGetFlags(&flags, h), "host.get_flags.code");
    number(flags, "host.get_flags.of_0");
    code(cuMemHostGetDevicePointer_v2(&device, h, 0), "host.device_pointer.code");
    number(device == (CUdeviceptr)(uintptr_t)h, "host.device_pointer.same");
    code(cuMemHostGetDevicePointer_v2(&device, (char *)h + 100, 0), "host.device_pointer.interior.code");
    number(device == (CUdeviceptr)(uintptr_t)h + 100, "host.device_pointer.interior.same");
    code(cuMemHostGetDevicePointer_v2(&device, h, 1), "host.device_pointer.bad_flags");
    code(cuMemGetAddressRange_v2(&begin, &size, (CUdeviceptr)(uintptr_t)h), "host.range.code");
    code(cuMemFree_v2((CUdeviceptr)(uintptr_t)h), "host.cuMemFree");
    code(cuMemFreeHost((char *)h + 8), "host.free_interior");
    code(cuMemFreeHost(h), "host.free");
    code(cuMemFreeHost(h), "host.free_twice");
    code(cuMemFreeHost(NULL), "host.free_null");
    code(cuMemAllocHost_v2(&h, 1000), "host.alloc_host.code");
    cuMemHostGetFlags(&flags, h);
    number(flags, "host.alloc_host.flags");
    cuMemFreeHost(h);
    code(cuMemHostAlloc(&h, 1000, 4), "host.write_combined");
    cuMemHostGetFlags(&flags, h);
    number(flags, "host.write_combined.flags");
    cuMemFreeHost(h);
    CUdeviceptr p = 0;
    cuMemAlloc_v2(&p, 64);
    code(cuMemFreeHost((void *)(uintptr_t)p), "host.free_device_pointer");
    cuMemFree_v2(p);

    local = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(local, 1, 1 << 20);
    code(cuMemHostRegister_v2(NULL, 16, 0), "register.null");
    code(cuMemHostRegister_v2(local, 0, 0), "register.zero");
    code(cuMemHostRegister_v2(local, 65536, 0x100), "register.bad_flags");
    code(cuMemHostUnregister(local), "register.unregister_unknown");
    code(cuMemHostRegister_v2((char *)local + 100, 1000, 0), "register.unaligned");
    code(cuMemHostRegister_v2((char *)local + 100, 1000, 0), "register.unaligned_again");
    code(cuMemHostRegister_v2((char *)local + 5000, 1000, 0), "register.next_page");
    code(cuMemHostGetDevicePointer_v2(&device, (char *)local + 200, 0), "register.device_pointer.code");
    number(device == (CUdeviceptr)(uintptr_t)local + 200, "register.device_pointer.same");
    code(cuMemHostGetFlags(&flags, (char *)local + 100), "register.get_flags.code");
    number(flags, "register.get_flags");
    code(cuMemFreeHost((char *)local + 100), "register.free_host");
    code(cuMemHostUnregister((char *)local + 200), "register.unregister_interior");
    code(cuMemHostUnregister((char *)local + 100), "register.unregister");
    code(cuMemHostUnregister((char *)local + 100), "register.unregister_again");
    code(cuMemHostUnregister((char *)local + 5000), "register.unregister_second");
    code(cuMemHostUnregister(NULL), "register.unregister_null");
    munmap(local, 1 << 20);
}

static void arrays(void) {
    CUarray a = NULL, level = NULL;
    CUmipmappedArray m = NULL;
    ArrayDescriptor d = {64, 32, 0x20, 4}, got = {0};
    Array3DDescriptor v = {32, 16, 8, 0x01, 1, 0};
    code(cuArrayCreate_v2(&a, &d), "array.create");
    code(cuArrayGetDescriptor_v2(&got, a), "array.descriptor.code");
    number((long long)got.width, "array.descriptor.width");
    number((long long)got.height, "array.descriptor.height");
    number(got.format, "array.descriptor.format");
    number(got.channels, "array.descriptor.channels");
    char in[32], out[32] = {0};
    for (int i = 0; i < 32; i++) in[i] = (char)(i + 1);
    Memcpy2D to = {.src_type = 1, .src_host = in, .src_pitch = 16, .dst_type = 3, .dst_array = a, .dst_x = 16, .dst_y = 2, .width = 16, .height = 2};
    Memcpy2D from = {.src_type = 3, .src_array = a, .src_x = 16, .src_y = 2, .dst_type = 1, .dst_host = out, .dst_pitch = 16, .width = 16, .height = 2};
    code(cuMemcpy2D_v2(&to), "array.copy_in");
    code(cuMemcpy2D_v2(&from), "array.copy_out");
    number(!memcmp(in, out, 32), "array.bytes_kept");
    code(cuArrayDestroy(a), "array.destroy");
    code(cuArrayDestroy(NULL), "array.destroy_null");
    code(cuArrayCreate_v2(NULL, &d), "array.nowhere");
    code(cuArrayCreate_v2(&a, NULL), "array.null_descriptor");
    d.width = 0;
    code(cuArrayCreate_v2(&a, &d), "array.width_0");
    d.width = 64, d.height = 0;
    code(cuArrayCreate_v2(&a, &d), "array.one_dimension");
    cuArrayDestroy(a);
    d.height = 32, d.channels = 3;
    code(cuArrayCreate_v2(&a, &d), "array.channels_3");
    d.channels = 1, d.format = 0x99;
    code(cuArrayCreate_v2(&a, &d), "array.bad_format");
    d.format = 1, d.width = 1 << 30, d.height = 1 << 30;
    code(cuArrayCreate_v2(&a, &d), "array.huge");
    code(cuArray3DCreate_v2(&a, &v), "array3d.create");
    cuArrayDestroy(a);
    v.flags = 1; /* layered */
    code(cuArray3DCreate_v2(&a, &v), "array3d.layered");
    cuArrayDestroy(a);
    v.flags = 0;
    code(cuMipmappedArrayCreate(&m, &v, 3), "mipmap.create");
    code(cuMipmappedArrayGetLevel(&level, m, 1), "mipmap.level_1");
    Array3DDescriptor at = {0};
    code(cuArray3DGetDescriptor_v2(&at, level), "mipmap.level_1.descriptor");
    number((long long)at.width, "mipmap.level_1.width");
    code(cuMipmappedArrayGetLevel(&level, m, 9), "mipmap.level_9");
    code(cuMipmappedArrayDestroy(m), "mipmap.destroy");
    code(cuMipmappedArrayCreate(&m, &v, 0), "mipmap.levels_0");
    code(cuMipmappedArrayDestroy(NULL), "mipmap.destroy_null");
    size_t before = free_memory();
    ArrayDescriptor big = {4096, 4096, 0x20, 1};
    a = NULL;
    cuArrayCreate_v2(&a, &big);
    number((long long)(before - free_memory()) / (long long)MIB, "array.4096x4096_float_takes_MiB");
    cuArrayDestroy(a);
    number((long long)(before - free_memory()) / (long long)MIB, "array.destroyed_keeps_MiB");
}

void section_kinds(void) {
    start();
    pitched();
    managed();
    host();
    arrays();
}

void section_copy(void) {
    CUcontext context = start();
    CUdeviceptr p = 0, q = 0;
    unsigned char out[256];
    unsigned char in[256];
    for (int i = 0; i < 256; i++) in[i] = (unsigned char)i;
    cuMemAlloc_v2(&p, 1000);
    cuMemAlloc_v2(&q, 1000);
    code(cuMemsetD8_v2(p, 7, 1000), "memset.d8");
    code(cuMemcpyDtoH_v2(out, p + 900, 100), "copy.dtoh");
    number(out[0] == 7 && out[99] == 7, "memset.d8.bytes");
    code(cuMemsetD16_v2(p, 0x1234, 10), "memset.d16");
    code(cuMemsetD32_v2(p + 32, 0x12345678, 2), "memset.d32");
    cuMemcpyDtoH_v2(out, p, 48);
    number(out[0] == 0x34 && out[1] == 0x12 && out[19] == 0x12 && out[20] == 7 && out[32] == 0x78 && out[39] == 0x12 && out[40] == 7, "memset.patterns");
    code(cuMemsetD16_v2(p + 1, 0, 2), "memset.d16_unaligned");
    code(cuMemsetD32_v2(p + 2, 0, 2), "memset.d32_unaligned");
    code(cuMemsetD8_v2(p, 0, 0), "memset.count_0");
    code(cuMemsetD8_v2(0, 0, 0), "memset.null_count_0");
    code(cuMemsetD8_v2(0, 0, 4), "memset.null");
    code(cuMemsetD2D8_v2(p, 100, 3, 10, 5), "memset.2d");
    cuMemcpyDtoH_v2(out, p, 256);
    number(out[0] == 3 && out[9] == 3 && out[10] != 3 && out[100] == 3 && out[110] != 3, "memset.2d.bytes");
    code(cuMemcpyHtoD_v2(p, in, 256), "copy.htod");
    code(cuMemcpyDtoD_v2(q, p, 256), "copy.dtod");
    code(cuMemcpyDtoH_v2(out, q, 256), "copy.back");
    number(!memcmp(in, out, 256), "copy.bytes");
    memset(out, 0, sizeof out);
    code(cuMemcpy((CUdeviceptr)(uintptr_t)out, q, 256), "copy.unified");
    number(!memcmp(in, out, 256), "copy.unified.bytes");
    CUstream s = side_stream();
    memset(out, 0, sizeof out);
    code(cuMemcpyHtoDAsync_v2(p, in, 256, s), "copy.async.htod");
    code(cuMemcpyAsync(q, p, 256, s), "copy.async.unified");
    code(cuMemcpyDtoDAsync_v2(p, q, 256, s), "copy.async.dtod");
    code(cuMemcpyDtoHAsync_v2(out, p, 256, s), "copy.async.dtoh");
    cuStreamSynchronize(s);
    number(!memcmp(in, out, 256), "copy.async.bytes");
    code(cuMemcpyPeer(p, context, q, context, 16), "copy.peer_to_self");
    code(cuMemcpyHtoD_v2(p, in, 0), "copy.size_0");
    code(cuMemcpyHtoD_v2(0, in, 0), "copy.null_size_0");
    code(cuMemcpyHtoD_v2(0, in, 4), "copy.to_null");
    code(cuMemcpyHtoD_v2(p, NULL, 4), "copy.from_null");
    code(cuMemcpyHtoD_v2(p, in, (size_t)1 << 40), "copy.huge");
    code(cuMemcpyDtoD_v2(p + 10, p, 100), "copy.overlap");
    code(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)out, in, 16), "copy.htod_to_stack");
    code(cuMemcpyDtoH_v2(out, (CUdeviceptr)(uintptr_t)in, 16), "copy.dtoh_from_stack");
    code(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)out, 1, 16), "memset.stack");
    CUdeviceptr big = 0;
    cuMemAlloc_v2(&big, 4 * MIB);
    code(cuMemsetD8_v2(big, 1, 4 * MIB + 1), "memset.one_past");
    code(cuMemsetD8_v2(p, 1, 1025), "memset.past_slack_of_1000");
    code(cuMemsetD8_v2(p, 1, 1001), "memset.one_past_1000");
    code(cuMemcpyHtoD_v2(p + 1000, in, 1), "copy.one_past_1000");
    cuMemFree_v2(big);
    code(cuMemsetD8_v2(big, 1, 16), "memset.freed");
    code(cuMemcpyHtoD_v2(big, in, 16), "copy.freed");
    code(cuMemcpyDtoH_v2(out, big, 16), "copy.from_freed");
    code(cuMemsetD8Async(big, 1, 16, s), "memset.async_freed");
    code(cuStreamSynchronize(s), "memset.async_freed.synchronize");
    code(cuMemcpyHtoD_v2(p, in, 16), "copy.still_works");
}

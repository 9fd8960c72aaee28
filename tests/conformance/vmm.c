/* Virtual memory management: sizes, order of calls and codes. */
#include "conformance.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGE (2 * MIB)

static void creation(void) {
    AllocationProp prop = {.type = 1, .location = {1, 0}}, got;
    CUhandle h = 77;
    size_t n = 0;
    code(cuMemGetAllocationGranularity(&n, &prop, 0), "vmm.granularity.minimum.code");
    number((long long)n, "vmm.granularity.minimum");
    code(cuMemGetAllocationGranularity(&n, &prop, 1), "vmm.granularity.recommended.code");
    number((long long)n, "vmm.granularity.recommended");
    code(cuMemGetAllocationGranularity(&n, &prop, 7), "vmm.granularity.bad_option");
    code(cuMemGetAllocationGranularity(NULL, &prop, 0), "vmm.granularity.nowhere");
    code(cuMemGetAllocationGranularity(&n, NULL, 0), "vmm.granularity.no_prop");
    static const struct { const char *name; AllocationProp prop; } odd[] = {
        {"bad_type", {.type = 9, .location = {1, 0}}},  {"bad_location", {.type = 1, .location = {9, 0}}},
        {"location_0", {.type = 1, .location = {0, 0}}}, {"bad_device", {.type = 1, .location = {1, 99}}},
        {"device_minus_1", {.type = 1, .location = {1, -1}}}, {"host", {.type = 1, .location = {2, 0}}},
        {"host_numa_0", {.type = 1, .location = {3, 0}}}, {"host_numa_current", {.type = 1, .location = {4, 0}}},
        {"handle_type_99", {.type = 1, .handles = 0x20, .location = {1, 0}}}, {"posix_fd", {.type = 1, .handles = 1, .location = {1, 0}}},
        {"rdma", {.type = 1, .location = {1, 0}, .rdma = 1}}, {"usage_1", {.type = 1, .location = {1, 0}, .usage = 1}},
        {"managed_type", {.type = 2, .location = {1, 0}}}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        n = 0;
        CUresult result = cuMemGetAllocationGranularity(&n, &odd[i].prop, 0);
        code(result, "vmm.granularity.%s.code", odd[i].name);
        if (!result) number((long long)n, "vmm.granularity.%s", odd[i].name);
        h = 0;
        result = cuMemCreate(&h, PAGE, &odd[i].prop, 0);
        code(result, "vmm.create.%s", odd[i].name);
        if (!result) cuMemRelease(h);
    }
    h = 77;
    code(cuMemCreate(&h, 0, &prop, 0), "vmm.create.size_0");
    code(cuMemCreate(&h, 4096, &prop, 0), "vmm.create.size_4096");
    code(cuMemCreate(&h, PAGE + 1, &prop, 0), "vmm.create.size_unaligned");
    code(cuMemCreate(&h, (size_t)1 << 44, &prop, 0), "vmm.create.16TiB");
    number(h == 77, "vmm.create.failure_leaves_handle");
    code(cuMemCreate(NULL, PAGE, &prop, 0), "vmm.create.nowhere");
    code(cuMemCreate(&h, PAGE, NULL, 0), "vmm.create.no_prop");
    code(cuMemCreate(&h, PAGE, &prop, 1), "vmm.create.flags_1");
    size_t before = free_memory();
    code(cuMemCreate(&h, 32 * MIB, &prop, 0), "vmm.create.code");
    number((long long)(before - free_memory()) / (long long)MIB, "vmm.create.32MiB_takes_MiB");
    memset(&got, 0xff, sizeof got);
    code(cuMemGetAllocationPropertiesFromHandle(&got, h), "vmm.properties.code");
    number(got.type, "vmm.properties.type");
    number(got.location.type, "vmm.properties.location_type");
    number(got.location.id, "vmm.properties.location_id");
    number(got.handles, "vmm.properties.handles");
    number(got.rdma, "vmm.properties.rdma");
    int fd = -1;
    code(cuMemExportToShareableHandle(&fd, h, 1, 0), "vmm.export_of_unexportable");
    code(cuMemRelease(h), "vmm.release");
    number((long long)(before - free_memory()) / (long long)MIB, "vmm.release.keeps_MiB");
    code(cuMemRelease(h), "vmm.release_twice");
    code(cuMemRelease(0), "vmm.release_0");
}

static void reservation(void) {
    CUdeviceptr p = 77, q = 0;
    code(cuMemAddressReserve(&p, 0, 0, 0, 0), "vmm.reserve.size_0");
    code(cuMemAddressReserve(&p, 4096, 0, 0, 0), "vmm.reserve.size_4096");
    code(cuMemAddressReserve(&p, PAGE + 4096, 0, 0, 0), "vmm.reserve.size_2MiB_and_4096");
    code(cuMemAddressReserve(&p, PAGE, 3, 0, 0), "vmm.reserve.alignment_3");
    code(cuMemAddressReserve(&p, PAGE, 4096, 0, 0), "vmm.reserve.alignment_4096");
    code(cuMemAddressReserve(&p, PAGE, 0, 0, 1), "vmm.reserve.flags_1");
    code(cuMemAddressReserve(NULL, PAGE, 0, 0, 0), "vmm.reserve.nowhere");
    code(cuMemAddressReserve(&p, (size_t)1 << 60, 0, 0, 0), "vmm.reserve.2_to_60");
    code(cuMemAddressReserve(&p, (size_t)1 << 40, 0, 0, 0), "vmm.reserve.1TiB");
    code(cuMemAddressFree(p, (size_t)1 << 40), "vmm.address_free.1TiB");
    code(cuMemAddressReserve(&p, 8 * PAGE, 0, 0, 0), "vmm.reserve.code");
    number(p % PAGE == 0, "vmm.reserve.aligned_2MiB");
    code(cuMemAddressReserve(&q, PAGE, 64 * MIB, 0, 0), "vmm.reserve.alignment_64MiB");
    number(q % (64 * MIB) == 0, "vmm.reserve.alignment_64MiB.kept");
    cuMemAddressFree(q, PAGE);
    code(cuMemAddressReserve(&q, PAGE, 0, p, 0), "vmm.reserve.hint_taken.code");
    number(q != p, "vmm.reserve.hint_taken.elsewhere");
    cuMemAddressFree(q, PAGE);
    code(cuMemAddressFree(p, PAGE), "vmm.address_free.part");
    code(cuMemAddressFree(p + PAGE, 7 * PAGE), "vmm.address_free.interior");
    code(cuMemAddressFree(p, 8 * PAGE), "vmm.address_free.code");
    code(cuMemAddressFree(p, 8 * PAGE), "vmm.address_free.twice");
    code(cuMemAddressReserve(&q, 8 * PAGE, 0, p, 0), "vmm.reserve.hint_free.code");
    number(q == p, "vmm.reserve.hint_free.kept");
    code(cuMemFree_v2(q), "vmm.reserve.cuMemFree");
    cuMemAddressFree(q, 8 * PAGE);
    code(cuMemAddressFree(0, PAGE), "vmm.address_free.null");
}

static void mapping(void) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    AccessDesc both = {{1, 0}, 3}, none = {{1, 0}, 0}, bad = {{1, 99}, 3}, reading = {{1, 0}, 1}, host = {{2, 0}, 3};
    CUhandle h = 0, h2 = 0, again = 0;
    CUdeviceptr p = 0, begin = 0;
    size_t size = 0;
    unsigned long long flags = 99;
    unsigned char in[16] = {1, 2, 3, 4, 5, 6, 7, 8}, out[16] = {0};
    cuMemCreate(&h, 2 * PAGE, &prop, 0);
    cuMemCreate(&h2, PAGE, &prop, 0);
    cuMemAddressReserve(&p, 8 * PAGE, 0, 0, 0);
    code(cuMemSetAccess(p, PAGE, &both, 1), "vmm.access.unmapped");
    code(cuMemUnmap(p, PAGE), "vmm.unmap.unmapped");
    code(cuMemGetAddressRange_v2(&begin, &size, p), "vmm.range.reserved_only");
    code(cuMemMap(p, 2 * PAGE, PAGE, h, 0), "vmm.map.at_offset_too_long");
    code(cuMemMap(p, PAGE, PAGE, h, 0), "vmm.map.at_offset");
    code(cuMemMap(p, PAGE, 0, h, 0), "vmm.map.part");
    cuMemUnmap(p, PAGE);
    code(cuMemMap(p, 3 * PAGE, 0, h, 0), "vmm.map.too_long");
    code(cuMemMap(p + 4096, PAGE, 0, h2, 0), "vmm.map.unaligned_address");
    code(cuMemMap(p, 4096, 0, h2, 0), "vmm.map.unaligned_size");
    code(cuMemMap(p, 0, 0, h2, 0), "vmm.map.size_0");
    code(cuMemMap(p, PAGE, 0, h2, 1), "vmm.map.flags_1");
    /* A handle that never was crashes the real driver: not tried. */
    code(cuMemMap(0x100000000000ull, PAGE, 0, h2, 0), "vmm.map.not_reserved");
    /* Beyond the end of the reservation the real driver maps too (seen with 580.159), over what is not ours: not tried. */
    code(cuMemMap(p, 2 * PAGE, 0, h, 0), "vmm.map.code");
    code(cuMemMap(p, 2 * PAGE, 0, h, 0), "vmm.map.again_same_place");
    code(cuMemMap(p + PAGE, PAGE, 0, h2, 0), "vmm.map.over_mapped");
    code(cuMemMap(p + 2 * PAGE, PAGE, 0, h2, 0), "vmm.map.second");
    code(cuMemMap(p + 4 * PAGE, 2 * PAGE, 0, h, 0), "vmm.map.same_handle_elsewhere");
    code(cuMemcpyHtoD_v2(p, in, 16), "vmm.copy.without_access");
    code(cuMemGetAccess(&flags, &both.location, p), "vmm.get_access.before.code");
    number((long long)flags, "vmm.get_access.before");
    code(cuMemSetAccess(p, PAGE, &both, 1), "vmm.access.part_of_mapping");
    code(cuMemSetAccess(p, 2 * PAGE, &bad, 1), "vmm.access.bad_device");
    code(cuMemSetAccess(p, 2 * PAGE, &host, 1), "vmm.access.host");
    code(cuMemSetAccess(p, 2 * PAGE, NULL, 1), "vmm.access.null");
    code(cuMemSetAccess(p, 2 * PAGE, &both, 0), "vmm.access.count_0");
    code(cuMemSetAccess(p, 4 * PAGE, &both, 1), "vmm.access.into_hole");
    code(cuMemSetAccess(p, 2 * PAGE, &reading, 1), "vmm.access.read_only");
    code(cuMemSetAccess(p, 3 * PAGE, &both, 1), "vmm.access.two_mappings");
    code(cuMemSetAccess(p + 4 * PAGE, 2 * PAGE, &both, 1), "vmm.access.alias");
    code(cuMemGetAccess(&flags, &both.location, p + 5), "vmm.get_access.after.code");
    number((long long)flags, "vmm.get_access.after");
    code(cuMemcpyHtoD_v2(p + PAGE - 8, in, 16), "vmm.copy.in");
    code(cuMemcpyDtoH_v2(out, p + 5 * PAGE - 8, 16), "vmm.copy.out_of_alias");
    number(!memcmp(in, out, 16), "vmm.alias_sees_same_bytes");
    code(cuMemcpyDtoD_v2(p + PAGE, p + 2 * PAGE - 64, 128), "vmm.copy.across_mappings");
    code(cuMemsetD8_v2(p + 2 * PAGE - 8, 1, 16), "vmm.memset.across_mappings");
    code(cuMemsetD8_v2(p + 3 * PAGE - 8, 1, 16), "vmm.memset.into_hole");
    code(cuMemGetAddressRange_v2(&begin, &size, p + PAGE + 5), "vmm.range.code");
    number((long long)(p + PAGE + 5 - begin), "vmm.range.offset");
    number((long long)size, "vmm.range.size");
    code(cuMemFree_v2(p), "vmm.mapped.cuMemFree");
    code(cuMemFreeAsync(p, NULL), "vmm.mapped.cuMemFreeAsync");
    code(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(p + 100)), "vmm.retain.code");
    number(again == h, "vmm.retain.same_handle");
    code(cuMemRelease(again), "vmm.retain.release");
    code(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(p + 3 * PAGE)), "vmm.retain.unmapped");
    CUdeviceptr plain = 0;
    cuMemAlloc_v2(&plain, PAGE);
    code(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)plain), "vmm.retain.of_cuMemAlloc");
    code(cuMemUnmap(plain, PAGE), "vmm.unmap.of_cuMemAlloc");
    cuMemFree_v2(plain);
    code(cuMemAddressFree(p, 8 * PAGE), "vmm.address_free.while_mapped");
    code(cuMemUnmap(p, PAGE), "vmm.unmap.part");
    code(cuMemUnmap(p + PAGE, PAGE), "vmm.unmap.tail");
    code(cuMemUnmap(p, 4 * PAGE), "vmm.unmap.with_hole");
    code(cuMemUnmap(p, 0), "vmm.unmap.size_0");
    /* Release while mapped: memory stays until the last unmapping; contents move with the handle. */
    size_t before = free_memory();
    code(cuMemRelease(h), "vmm.release.while_mapped");
    number((long long)(free_memory() - before) / (long long)MIB, "vmm.release.while_mapped.gives_MiB");
    code(cuMemUnmap(p + 4 * PAGE, 2 * PAGE), "vmm.unmap.alias");
    memset(out, 0, 16);
    code(cuMemcpyDtoH_v2(out, p + PAGE - 8, 8), "vmm.copy.after_release_still_mapped");
    number(!memcmp(in, out, 8), "vmm.copy.after_release_bytes");
    code(cuMemUnmap(p, 3 * PAGE), "vmm.unmap.two_mappings");
    number((long long)(free_memory() - before) / (long long)MIB, "vmm.unmap.last.gives_MiB");
    code(cuMemcpyDtoH_v2(out, p, 8), "vmm.copy.unmapped");
    code(cuMemsetD8_v2(p, 1, 8), "vmm.memset.unmapped");
    cuMemMap(p, PAGE, 0, h2, 0);
    cuMemSetAccess(p, PAGE, &both, 1);
    cuMemcpyHtoD_v2(p, in, 8);
    cuMemUnmap(p, PAGE);
    cuMemMap(p + 5 * PAGE, PAGE, 0, h2, 0);
    cuMemSetAccess(p + 5 * PAGE, PAGE, &both, 1);
    memset(out, 0, 16);
    code(cuMemcpyDtoH_v2(out, p + 5 * PAGE, 8), "vmm.remap.copy");
    number(!memcmp(in, out, 8), "vmm.remap.contents_kept");
    code(cuMemSetAccess(p + 5 * PAGE, PAGE, &none, 1), "vmm.access.take_away");
    code(cuMemcpyDtoH_v2(out, p + 5 * PAGE, 8), "vmm.copy.access_taken_away");
    cuMemUnmap(p + 5 * PAGE, PAGE);
    cuMemRelease(h2);
    /* Last, since a driver may crash here. */
    code(cuMemMap(p, 2 * PAGE, 0, h, 0), "vmm.map.released_handle");
    cuMemUnmap(p, 2 * PAGE);
    code(cuMemAddressFree(p, 8 * PAGE), "vmm.address_free.after_unmap");
}

static void sharing(void) {
    AllocationProp prop = {.type = 1, .handles = 1, .location = {1, 0}};
    AccessDesc both = {{1, 0}, 3};
    CUhandle h = 0, imported = 0;
    CUdeviceptr p = 0;
    int fd = -1;
    unsigned char in[4] = {9, 8, 7, 6}, out[4] = {0};
    cuMemCreate(&h, PAGE, &prop, 0);
    code(cuMemExportToShareableHandle(&fd, h, 1, 0), "vmm.share.export");
    number(fd >= 0, "vmm.share.export.fd");
    code(cuMemExportToShareableHandle(&fd, h, 1, 1), "vmm.share.export.flags_1");
    code(cuMemExportToShareableHandle(&fd, h, 2, 0), "vmm.share.export.win32");
    code(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1), "vmm.share.import");
    code(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)9999, 1), "vmm.share.import.bad_fd");
    number(imported != h, "vmm.share.import.other_handle");
    cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0);
    cuMemMap(p, PAGE, 0, h, 0);
    code(cuMemMap(p + PAGE, PAGE, 0, imported, 0), "vmm.share.map");
    code(cuMemSetAccess(p, 2 * PAGE, &both, 1), "vmm.share.access");
    cuMemcpyHtoD_v2(p, in, 4);
    cuMemcpyDtoH_v2(out, p + PAGE, 4);
    number(!memcmp(in, out, 4), "vmm.share.same_bytes");
    close(fd);
    cuMemUnmap(p, 2 * PAGE);
    code(cuMemRelease(imported), "vmm.share.release_imported");
    code(cuMemRelease(h), "vmm.share.release");
    cuMemAddressFree(p, 2 * PAGE);
    cuMemAlloc_v2(&p, PAGE);
    code(cuMemGetHandleForAddressRange(&fd, p, PAGE, 1, 0), "vmm.dma_buf.of_cuMemAlloc");
    cuMemFree_v2(p);
}

static void host_located(void) {
    AllocationProp prop = {.type = 1, .location = {3, 0}};
    AccessDesc device = {{1, 0}, 3}, host = {{3, 0}, 3};
    CUhandle h = 0;
    CUdeviceptr p = 0;
    size_t before = free_memory();
    CUresult result = cuMemCreate(&h, PAGE, &prop, 0);
    code(result, "vmm.host_numa.create");
    if (result) return;
    number((long long)(before - free_memory()), "vmm.host_numa.takes_device_bytes");
    cuMemAddressReserve(&p, PAGE, 0, 0, 0);
    code(cuMemMap(p, PAGE, 0, h, 0), "vmm.host_numa.map");
    code(cuMemSetAccess(p, PAGE, &device, 1), "vmm.host_numa.access_device");
    code(cuMemsetD8_v2(p, 3, 16), "vmm.host_numa.memset");
    cuCtxSynchronize();
    result = cuMemSetAccess(p, PAGE, &host, 1);
    code(result, "vmm.host_numa.access_host");
    if (!result) number(*(unsigned char *)(uintptr_t)p, "vmm.host_numa.host_reads");
    code(cuMemUnmap(p, PAGE), "vmm.host_numa.unmap");
    cuMemRelease(h);
    cuMemAddressFree(p, PAGE);
}

void section_vmm(void) {
    start();
    creation();
    reservation();
    sharing();
    host_located();
    mapping();
}

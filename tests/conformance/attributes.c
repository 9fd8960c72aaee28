/* Pointer attributes of every kind of memory. */
#include "conformance.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char *const attribute_names[] = {
    "", "CONTEXT", "MEMORY_TYPE", "DEVICE_POINTER", "HOST_POINTER", "P2P_TOKENS", "SYNC_MEMOPS", "BUFFER_ID", "IS_MANAGED",
    "DEVICE_ORDINAL", "IS_LEGACY_CUDA_IPC_CAPABLE", "RANGE_START_ADDR", "RANGE_SIZE", "MAPPED", "ALLOWED_HANDLE_TYPES",
    "IS_GPU_DIRECT_RDMA_CAPABLE", "ACCESS_FLAGS", "MEMPOOL_HANDLE", "MAPPING_SIZE", "MAPPING_BASE_ADDR", "MEMORY_BLOCK_ID"};

/* The value in words that hold on any machine. */
static void describe(char *out, size_t size, int attribute, unsigned long long value, CUdeviceptr p, CUcontext context) {
    CUmemoryPool pool = NULL;
    switch (attribute) {
    case 1: snprintf(out, size, "%s", !value ? "null" : value == (uintptr_t)context ? "current" : "other"); break;
    case 3: case 4: case 11: case 19:
        if (!value) snprintf(out, size, "null");
        else snprintf(out, size, "pointer%+lld", (long long)(value - p));
        break;
    case 7: case 20: snprintf(out, size, "%s", value ? "nonzero" : "0"); break;
    case 17:
        cuDeviceGetDefaultMemPool(&pool, 0);
        snprintf(out, size, "%s", !value ? "null" : value == (uintptr_t)pool ? "default pool" : "other");
        break;
    case 2: case 9: snprintf(out, size, "%d", (int)value); break;
    case 16: snprintf(out, size, "%d", (int)value); break;
    default: snprintf(out, size, "%lld", (long long)value); break;
    }
}

void attributes_of(const char *kind, CUdeviceptr p, CUcontext context) {
    for (int attribute = 1; attribute <= 20; attribute++) {
        if (attribute == 5) continue;
        unsigned long long value[4] = {0};
        char out[64];
        CUresult result = cuPointerGetAttribute(value, attribute, p);
        if (result) snprintf(out, sizeof out, "code %d", result);
        else describe(out, sizeof out, attribute, value[0], p, context);
        text(out, "attribute.%s.%s", kind, attribute_names[attribute]);
    }
    /* The plural form: how runtime libraries ask. */
    CUcontext owner = NULL;
    unsigned type = 99, managed = 99;
    int ordinal = 99;
    CUdeviceptr device = 1;
    void *host = (void *)1;
    int attributes[] = {1, 2, 3, 4, 8, 9};
    void *values[] = {&owner, &type, &device, &host, &managed, &ordinal};
    code(cuPointerGetAttributes(6, attributes, values, p), "attributes.%s.code", kind);
    char out[64];
    describe(out, sizeof out, 1, (uintptr_t)owner, p, context), text(out, "attributes.%s.CONTEXT", kind);
    number(type, "attributes.%s.MEMORY_TYPE", kind);
    describe(out, sizeof out, 3, device, p, context), text(out, "attributes.%s.DEVICE_POINTER", kind);
    describe(out, sizeof out, 4, (uintptr_t)host, p, context), text(out, "attributes.%s.HOST_POINTER", kind);
    number((unsigned char)managed, "attributes.%s.IS_MANAGED", kind);
    number(ordinal, "attributes.%s.DEVICE_ORDINAL", kind);
}

void section_attributes(void) {
    CUcontext context = start();
    CUdeviceptr p = 0, q = 0;
    void *host = NULL;
    cuMemAlloc_v2(&p, 1000);
    attributes_of("device", p, context);
    attributes_of("device_interior", p + 100, context);
    attributes_of("device_one_past", p + 1000, context);
    unsigned long long id = 0, id2 = 0;
    cuPointerGetAttribute(&id, 7, p);
    cuMemFree_v2(p);
    attributes_of("freed", p, context);
    cuMemAlloc_v2(&q, 1000);
    cuPointerGetAttribute(&id2, 7, q);
    number(p == q, "attribute.buffer_id.same_address");
    number(id != id2, "attribute.buffer_id.new_after_free");
    cuMemFree_v2(q);
    cuMemAlloc_v2(&p, 5 * MIB);
    attributes_of("device_large", p, context);
    attributes_of("device_large_second_page", p + 3 * MIB, context);
    attributes_of("device_large_past", p + 5 * MIB, context);
    cuMemFree_v2(p);
    cuMemAllocManaged(&p, 1000, 1);
    attributes_of("managed", p, context);
    cuMemFree_v2(p);
    cuMemHostAlloc(&host, 1000, 0);
    attributes_of("host", (CUdeviceptr)(uintptr_t)host, context);
    attributes_of("host_interior", (CUdeviceptr)(uintptr_t)host + 8, context);
    cuMemFreeHost(host);
    host = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    attributes_of("plain_host", (CUdeviceptr)(uintptr_t)host, context);
    cuMemHostRegister_v2(host, 65536, 0);
    attributes_of("registered", (CUdeviceptr)(uintptr_t)host, context);
    cuMemHostUnregister(host);
    munmap(host, 65536);
    attributes_of("null", 0, context);
    size_t pitch = 0;
    cuMemAllocPitch_v2(&p, &pitch, 100, 10, 4);
    attributes_of("pitched", p, context);
    cuMemFree_v2(p);
    p = 0;
    cuMemAllocAsync(&p, 1000, NULL);
    cuStreamSynchronize(NULL);
    attributes_of("async", p, context);
    cuMemFreeAsync(p, NULL);
    cuStreamSynchronize(NULL);
    attributes_of("async_freed", p, context);

    AllocationProp prop = {.type = 1, .location = {1, 0}};
    AccessDesc access = {{1, 0}, 3};
    CUhandle handle = 0;
    cuMemAddressReserve(&p, 8 * MIB, 0, 0, 0);
    attributes_of("reserved", p, context);
    cuMemCreate(&handle, 2 * MIB, &prop, 0);
    cuMemMap(p + 2 * MIB, 2 * MIB, 0, handle, 0);
    attributes_of("mapped_no_access", p + 2 * MIB, context);
    cuMemSetAccess(p + 2 * MIB, 2 * MIB, &access, 1);
    attributes_of("mapped", p + 2 * MIB, context);
    attributes_of("mapped_interior", p + 3 * MIB, context);
    cuMemUnmap(p + 2 * MIB, 2 * MIB);
    cuMemRelease(handle);
    cuMemAddressFree(p, 8 * MIB);

    cuMemAlloc_v2(&p, 1000);
    for (int attribute = 1; attribute <= 20; attribute++) {
        unsigned char bytes[64];
        int width = 64;
        if (attribute == 5) continue;
        memset(bytes, 0xaa, sizeof bytes);
        if (cuPointerGetAttribute(bytes, attribute, p)) continue;
        while (width > 0 && bytes[width - 1] == 0xaa) width--;
        number(width, "attribute.width.%s", attribute_names[attribute]);
    }
    unsigned on = 1, value = 9;
    code(cuPointerSetAttribute(&on, 6, p), "attribute.set_sync_memops.code");
    cuPointerGetAttribute(&value, 6, p);
    number((unsigned char)value, "attribute.set_sync_memops.value");
    code(cuPointerSetAttribute(&on, 2, p), "attribute.set_memory_type.code");
    code(cuPointerGetAttribute(&value, 999, p), "attribute.unknown_attribute.code");
    code(cuPointerGetAttribute(NULL, 2, p), "attribute.null_data.code");
    cuMemFree_v2(p);
}

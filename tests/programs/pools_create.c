/* Pools made and destroyed: which can be made, which one a device allocates from, and what becomes of live blocks.
   Argument: the part. */
#include "streams.h"

static CUmemoryPool current_pool(CUdevice device) {
    CUmemoryPool pool = NULL;
    OK(cuDeviceGetMemPool(&pool, device));
    return pool;
}

/* Writes a block on the stream and reads its last byte back. */
static int works(CUdeviceptr block, size_t bytes, CUstream stream) {
    unsigned char byte = 0;
    OK(cuMemsetD8Async(block, 0x5a, bytes, stream));
    OK(cuMemcpyDtoHAsync_v2(&byte, block + bytes - 1, 1, stream));
    OK(cuStreamSynchronize(stream));
    return byte == 0x5a;
}

static void kinds(void) {
    static const struct { const char *name; PoolProps props; } all[] = {
        {"plain", {.type = 1, .location = {1, 0}}},
        {"type 0", {.type = 0, .location = {1, 0}}},
        {"type 3", {.type = 3, .location = {1, 0}}},
        {"no location", {.type = 1, .location = {0, 0}}},
        {"device 99", {.type = 1, .location = {1, 99}}},
        {"device -1", {.type = 1, .location = {1, -1}}},
        {"of the host", {.type = 1, .location = {2, 0}}},
        {"of a host node", {.type = 1, .location = {3, 0}}},
        {"to be exported", {.type = 1, .handles = 1, .location = {1, 0}}},
        {"managed", {.type = 2, .location = {1, 0}}},
        {"of at most 64 MiB", {.type = 1, .location = {1, 0}, .max_size = 64 * MIB}}};
    CUstream side = side_stream();
    CUmemoryPool pool = NULL;
    SAY("nowhere", cuMemPoolCreate(NULL, &all[0].props));
    SAY("without properties", cuMemPoolCreate(&pool, NULL));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CUdeviceptr block = 0, more = 0;
        CUmemoryPool of = NULL;
        char data[64];
        int fd = -1;
        CUresult result = cuMemPoolCreate(&pool, &all[i].props);
        printf("%s: %d\n", all[i].name, result);
        if (result) continue;
        SAY("  allocate", cuMemAllocFromPoolAsync(&block, 48 * MIB, pool, side));
        SAY("  works", works(block, 48 * MIB, side));
        OK(cuPointerGetAttribute(&of, 17, block));
        SAY("  names its pool", of == pool);
        SAY("  export", cuMemPoolExportToShareableHandle(&fd, pool, 1, 0));
        if (fd >= 0) close(fd);
        SAY("  export of a block", cuMemPoolExportPointer(data, block));
        result = cuMemAllocFromPoolAsync(&more, 48 * MIB, pool, side);
        SAY("  allocate as much again", result);
        if (result == SUCCESS) OK(cuMemFreeAsync(more, side));
        SAY("  free", cuMemFreeAsync(block, side));
        OK(cuStreamSynchronize(side));
        printf("  used %llu, reserved %llu\n", attribute(pool, USED_NOW), attribute(pool, RESERVED_NOW));
        SAY("  destroy", cuMemPoolDestroy(pool));
        SAY("  destroy again", cuMemPoolDestroy(pool));
    }
    SAY("export of the default pool", cuMemPoolExportToShareableHandle(&(int){0}, default_pool(0), 1, 0));
}

/* Blocks outlive their pool. */
static void destroy(void) {
    CUstream side = side_stream(), other = side_stream();
    size_t before = free_memory();
    for (int round = 0; round < 10; round++) {
        CUmemoryPool pool = new_pool(0, 0), next_pool = NULL;
        CUdeviceptr block[4], fresh = 0;
        OK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, (void *)&keep_all));
        for (int i = 0; i < 4; i++) {
            OK(cuMemAllocFromPoolAsync(&block[i], 3 * MIB, pool, side));
            OK(touch(side, block[i], 3 * MIB, 1, 100000));
        }
        OK(cuMemFreeAsync(block[3], side));
        SAY("destroy with live blocks", cuMemPoolDestroy(pool));
        SAY("again", cuMemPoolDestroy(pool));
        /* A new pool does not get at them. */
        next_pool = new_pool(0, 0);
        OK(cuMemAllocFromPoolAsync(&fresh, 3 * MIB, next_pool, other));
        OK(touch(other, fresh, 3 * MIB, 1, 1000));
        TRUE(works(block[0], 3 * MIB, side) && works(block[1], 3 * MIB, side) && works(fresh, 3 * MIB, other));
        SAY("free", cuMemFreeAsync(block[0], side));
        SAY("by cuMemFree", cuMemFree_v2(block[1]));
        OK(cuStreamSynchronize(side));
        OK(cuMemFreeAsync(block[2], side));
        SAY("twice", cuMemFreeAsync(block[2], side));
        OK(cuMemFreeAsync(fresh, other));
        OK(cuMemPoolDestroy(next_pool));
    }
    OK(cuCtxSynchronize());
    SAY("free memory as before", free_memory() == before);
    SAY("destroy the default pool", cuMemPoolDestroy(default_pool(0)));
    SAY("destroy none", cuMemPoolDestroy(NULL));
    SAY("the default pool is there", default_pool(0) == current_pool(0));
}

static void tell_used(CUmemoryPool own, CUmemoryPool standard) {
    printf("used of own %llu, of default %llu\n", attribute(own, USED_NOW), attribute(standard, USED_NOW));
}

/* The current pool of a device serves what names no pool. */
static void current(void) {
    CUstream side = side_stream();
    CUmemoryPool standard = default_pool(0), own = new_pool(0, 0), got = NULL;
    CUdeviceptr block = 0, other = 0;
    Location device = {1, 0}, far = {1, 99};
    SAY("current is default", current_pool(0) == standard);
    SAY("set", cuDeviceSetMemPool(0, own));
    SAY("current is own", current_pool(0) == own);
    SAY("default unchanged", default_pool(0) == standard);
    OK(cuMemAllocAsync(&block, 1000, side));
    tell_used(own, standard);
    OK(cuMemAllocFromPoolAsync(&other, 500, standard, side));
    tell_used(own, standard);
    OK(cuMemFreeAsync(other, side));
    OK(cuMemAllocAsync_ptsz(&other, 300, NULL));
    tell_used(own, standard);
    OK(cuMemFreeAsync_ptsz(other, NULL));

    SAY("by location", cuMemGetMemPool(&got, &device, 1));
    SAY("is own", got == own);
    SAY("default by location", cuMemGetDefaultMemPool(&got, &device, 1));
    SAY("is default", got == standard);
    SAY("set by location", cuMemSetMemPool(&device, 1, standard));
    SAY("current is default", current_pool(0) == standard);
    OK(cuMemAllocAsync(&other, 700, side));
    tell_used(own, standard);
    OK(cuMemFreeAsync(other, side));
    SAY("set by location", cuMemSetMemPool(&device, 1, own));
    SAY("set for a bad location", cuMemSetMemPool(&far, 1, own));
    SAY("set no pool by location", cuMemSetMemPool(&device, 1, NULL));

    SAY("destroy the current pool", cuMemPoolDestroy(own));
    SAY("current is default", current_pool(0) == standard);
    OK(cuMemAllocAsync(&other, 900, side));
    printf("used of default %llu\n", attribute(standard, USED_NOW));
    SAY("block of own works", works(block, 1000, side));
    SAY("block of default works", works(other, 900, side));
    SAY("free of own", cuMemFreeAsync(block, side));
    SAY("free of default", cuMemFreeAsync(other, side));
    OK(cuStreamSynchronize(side));

    SAY("set none", cuDeviceSetMemPool(0, NULL));
    SAY("set of a bad device", cuDeviceSetMemPool(99, standard));
    SAY("get of a bad device", cuDeviceGetMemPool(&got, 99));
    SAY("default of a bad device", cuDeviceGetDefaultMemPool(&got, 99) != SUCCESS);
    SAY("default nowhere", cuDeviceGetDefaultMemPool(NULL, 0));
    SAY("get nowhere", cuDeviceGetMemPool(NULL, 0));
    SAY("allocate from no pool", cuMemAllocFromPoolAsync(&other, 16, NULL, side));
}

/* A pool of at most so much. */
static void bound(void) {
    CUstream side = side_stream();
    CUmemoryPool pool = new_pool(0, 64 * MIB);
    CUdeviceptr block = 0, beyond = 0;
    for (int i = 0; i < 20; i++) {
        OK(cuMemAllocFromPoolAsync(&block, 33 * MIB, pool, side));
        OK(touch(side, block, 33 * MIB, 1, 50000));
        TRUE(cuMemAllocFromPoolAsync(&beyond, 33 * MIB, pool, side) == OUT_OF_MEMORY);
        TRUE(beyond == 0);
        /* Others are not concerned. */
        OK(cuMemAllocAsync(&beyond, 33 * MIB, side));
        OK(cuMemFreeAsync(beyond, side));
        OK(cuMemFreeAsync(block, side));
        OK(cuMemAllocFromPoolAsync(&block, 60 * MIB, pool, side));
        OK(touch(side, block, 60 * MIB, 1, 1000));
        TRUE(attribute(pool, RESERVED_NOW) <= 64 * MIB);
        OK(cuMemFreeAsync(block, side));
    }
    OK(cuStreamSynchronize(side));
    SAY("too much at once", cuMemAllocFromPoolAsync(&block, 65 * MIB, pool, side));
    printf("used %llu, reserved %llu\n", attribute(pool, USED_NOW), attribute(pool, RESERVED_NOW));
    OK(cuMemPoolDestroy(pool));
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    start_streams();
    if (!strcmp(argv[1], "kinds")) kinds();
    if (!strcmp(argv[1], "destroy")) destroy();
    if (!strcmp(argv[1], "current")) current();
    if (!strcmp(argv[1], "bound")) bound();
    return 0;
}

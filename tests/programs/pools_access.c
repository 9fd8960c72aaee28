/* A second device and a pool's memory: which device may use it, before and after access is set. Needs two devices.
   Argument: the part. */
#include "streams.h"

static CUcontext context[2];
static CUstream stream[2];

static int access_of(CUmemoryPool pool, int device) {
    Location location = {1, device};
    int flags = 99;
    OK(cuMemPoolGetAccess(&flags, pool, &location));
    return flags;
}

static void give(CUmemoryPool pool, int device, int flags) {
    AccessDesc access = {{1, device}, flags};
    OK(cuMemPoolSetAccess(pool, &access, 1));
}

/* Work of one device's stream comes after the other's. */
static void order(int from, int to) {
    CUevent event = NULL;
    OK(cuCtxSetCurrent(context[from]));
    OK(cuEventCreate(&event, 2));
    OK(cuEventRecord(event, stream[from]));
    OK(cuCtxSetCurrent(context[to]));
    OK(cuStreamWaitEvent(stream[to], event, 0));
    OK(cuEventDestroy_v2(event));
}

static void codes(CUmemoryPool pool) {
    AccessDesc own_none = {{1, 0}, 0}, bad = {{1, 99}, 3}, both[2] = {{{1, 0}, 3}, {{1, 1}, 3}}, neither[2] = {{{1, 1}, 3}, {{1, 99}, 3}};
    Location host = {2, 0}, far = {1, 99};
    int flags = 99;
    printf("at first: %d %d\n", access_of(pool, 0), access_of(pool, 1));
    SAY("of the host", cuMemPoolGetAccess(&flags, pool, &host));
    printf("  %d\n", flags);
    SAY("of a bad device", cuMemPoolGetAccess(&flags, pool, &far));
    SAY("of no pool", cuMemPoolGetAccess(&flags, NULL, &host));
    SAY("take its own", cuMemPoolSetAccess(pool, &own_none, 1));
    SAY("give a bad device", cuMemPoolSetAccess(pool, &bad, 1));
    SAY("give a bad device too", cuMemPoolSetAccess(pool, neither, 2));
    SAY("give in no pool", cuMemPoolSetAccess(NULL, both, 2));
    printf("still: %d %d\n", access_of(pool, 0), access_of(pool, 1));
    SAY("give both", cuMemPoolSetAccess(pool, both, 2));
    printf("given: %d %d\n", access_of(pool, 0), access_of(pool, 1));
    give(pool, 1, 0);
    printf("taken: %d %d\n", access_of(pool, 0), access_of(pool, 1));
    give(pool, 1, 3);
    printf("given: %d %d\n", access_of(pool, 0), access_of(pool, 1));
}

/* Writes a block by device 0, changes it by a kernel and a copy of device 1, frees it on either device's stream. */
static void use(CUmemoryPool pool, size_t bytes, int round) {
    CUdeviceptr block = 0, near = 0;
    unsigned char byte = 0;
    OK(cuCtxSetCurrent(context[0]));
    OK(cuMemAllocFromPoolAsync(&block, bytes, pool, stream[0]));
    OK(touch(stream[0], block, bytes, 1, 100000));
    OK(cuMemsetD8Async(block + bytes - 1, (unsigned char)round, 1, stream[0]));
    order(0, 1);
    OK(cuMemAllocAsync(&near, bytes, stream[1]));
    OK(touch(stream[1], block, bytes, 0, 1000));
    OK(cuMemcpyDtoDAsync_v2(near, block, bytes, stream[1]));
    OK(touch(stream[1], block, bytes, 1, 100000));
    OK(cuMemcpyDtoHAsync_v2(&byte, near + bytes - 1, 1, stream[1]));
    OK(cuMemFreeAsync(near, stream[1]));
    if (round % 2) {
        OK(cuMemFreeAsync(block, stream[1]));
    } else {
        order(1, 0);
        OK(cuMemFreeAsync(block, stream[0]));
    }
    OK(cuCtxSetCurrent(context[1]));
    OK(cuStreamSynchronize(stream[1]));
    TRUE(byte == round);
}

/* The order of device 1's use and free must hold for the next block of device 0, too. */
static void kernels(CUmemoryPool pool) {
    CUdeviceptr early = 0;
    OK(cuMemAllocFromPoolAsync(&early, 3 * MIB, pool, stream[0]));
    OK(touch(stream[0], early, 3 * MIB, 1, 1000));
    /* What is allocated already is given too. */
    give(pool, 1, 3);
    order(0, 1);
    OK(touch(stream[1], early, 3 * MIB, 1, 100000));
    OK(cuMemFreeAsync(early, stream[1]));
    for (int round = 0; round < 40; round++) use(pool, round % 4 == 3 ? 70 * MIB : (size_t)(round % 4 * 3 * MIB + 1000), round);
    OK(cuCtxSetCurrent(context[0]));
    OK(cuCtxSynchronize());
    printf("used %llu, reserved %llu\n", attribute(pool, USED_NOW), attribute(pool, RESERVED_NOW));
    printf("done\n");
}

/* Without access a kernel of device 1 is at fault: it is said once, for one block. */
static void fault(CUmemoryPool pool) {
    CUdeviceptr block = 0;
    OK(cuMemAllocFromPoolAsync(&block, 3 * MIB, pool, stream[0]));
    OK(touch(stream[0], block, 3 * MIB, 1, 1000));
    order(0, 1);
    OK(touch(stream[1], block, 3 * MIB, 1, 1000));
    OK(cuMemFreeAsync(block, stream[1]));
    OK(cuStreamSynchronize(stream[1]));
    printf("done\n");
}

/* Each device has its own default pool; a stream allocates from its own device's; a pool serves streams of another. */
static void devices(CUmemoryPool pool) {
    give(pool, 1, 3);
    for (int i = 0; i < 20; i++) {
        CUdeviceptr block[3] = {0};
        int ordinal[3] = {-1, -1, -1};
        for (int d = 0; d < 2; d++) {
            OK(cuCtxSetCurrent(context[d]));
            OK(cuMemAllocAsync(&block[d], 100000, i % 2 ? stream[d] : NULL));
            OK(touch(i % 2 ? stream[d] : LEGACY, block[d], 100000, 1, 50000));
        }
        OK(cuMemAllocFromPoolAsync(&block[2], 100000, pool, stream[1]));
        OK(touch(stream[1], block[2], 100000, 1, 50000));
        for (int k = 0; k < 3; k++) OK(cuPointerGetAttribute(&ordinal[k], 9, block[k]));
        TRUE(ordinal[0] == 0 && ordinal[1] == 1 && ordinal[2] == 0);
        TRUE(attribute(default_pool(0), USED_NOW) == 100000 && attribute(default_pool(1), USED_NOW) == 100000);
        OK(cuMemFreeAsync(block[2], stream[1]));
        for (int d = 0; d < 2; d++) {
            OK(cuCtxSetCurrent(context[d]));
            OK(cuMemFreeAsync(block[d], i % 2 ? stream[d] : NULL));
            OK(cuCtxSynchronize());
        }
        TRUE(attribute(default_pool(0), RESERVED_NOW) == 0 && attribute(default_pool(1), RESERVED_NOW) == 0);
    }
    /* The stream decides, whatever context is current. */
    CUdeviceptr block = 0;
    int ordinal = -1;
    OK(cuCtxSetCurrent(context[0]));
    OK(cuMemAllocAsync(&block, 5000, stream[1]));
    OK(cuPointerGetAttribute(&ordinal, 9, block));
    printf("device of the stream: %d\n", ordinal);
    OK(cuMemFreeAsync(block, stream[1]));
    printf("done\n");
}

/* Contexts' access to each other's memory is another thing than devices' access to a pool's, and answers as if there
   were no pool. Access of device 1 to memory of device 0 and back: one is given to the pool first, one last. */
static void peer(CUmemoryPool pool) {
    for (int accessor = 1; accessor >= 0; accessor--) {
        CUmemoryPool its = accessor ? pool : new_pool(1, 0);
        OK(cuCtxSetCurrent(context[accessor]));
        if (!accessor) SAY("enable", cuCtxEnablePeerAccess(context[!accessor], 0));
        give(its, accessor, 3);
        SAY("disable", cuCtxDisablePeerAccess(context[!accessor]));
        SAY("disable again", cuCtxDisablePeerAccess(context[!accessor]));
        SAY("enable", cuCtxEnablePeerAccess(context[!accessor], 0));
        SAY("enable again", cuCtxEnablePeerAccess(context[!accessor], 0));
        SAY("with flags", cuCtxEnablePeerAccess(context[!accessor], 1));
        SAY("disable", cuCtxDisablePeerAccess(context[!accessor]));
        SAY("enable", cuCtxEnablePeerAccess(context[!accessor], 0));
        /* The pool's memory can be used all the while. */
        CUdeviceptr block = 0;
        SAY("disable", cuCtxDisablePeerAccess(context[!accessor]));
        OK(cuMemAllocFromPoolAsync(&block, 3 * MIB, its, stream[accessor]));
        OK(touch(stream[accessor], block, 3 * MIB, 1, 1000));
        OK(cuMemFreeAsync(block, stream[accessor]));
        OK(cuStreamSynchronize(stream[accessor]));
    }
    printf("done\n");
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    context[0] = start_streams();
    OK(cuDevicePrimaryCtxRetain(&context[1], 1));
    for (int d = 1; d >= 0; d--) {
        OK(cuCtxSetCurrent(context[d]));
        stream[d] = side_stream();
    }
    CUmemoryPool pool = new_pool(0, 0);
    if (!strcmp(argv[1], "codes")) codes(pool);
    if (!strcmp(argv[1], "kernels")) kernels(pool);
    if (!strcmp(argv[1], "fault")) fault(pool);
    if (!strcmp(argv[1], "devices")) devices(pool);
    if (!strcmp(argv[1], "peer")) peer(pool);
    return 0;
}

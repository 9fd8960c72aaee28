/* Stream-ordered memory outlives the contexts that it is used in.
   Argument: `own` (the program never holds the primary context), `beside` (it does), `reset` (it resets that). */
#include "program.h"

enum { BYTES = 100000, BLOCKS = 8 };

static void tell(const char *when) {
    unsigned flags = 0;
    int active = -1;
    int code = cuDevicePrimaryCtxGetState(0, &flags, &active);
    printf("%s: state %d, active %d\n", when, code, active);
}

/* Every byte of a block has this value. */
static int holds(CUdeviceptr block, unsigned char value) {
    static unsigned char bytes[BYTES];
    OK(cuMemcpyDtoH_v2(bytes, block, BYTES));
    for (int i = 0; i < BYTES; i++)
        if (bytes[i] != value) return 0;
    return 1;
}

static void fill(CUdeviceptr block, int value, CUstream stream) {
    OK(cuMemsetD8Async(block, (unsigned char)value, BYTES, stream));
    OK(cuStreamSynchronize(stream));
}

/* A context comes and goes: half of its blocks are freed in it, half stay. */
static void visit(int round, CUdeviceptr *kept) {
    CUcontext own = NULL;
    OK(cuCtxCreate_v2(&own, 0, 0));
    CUstream stream = side_stream();
    CUdeviceptr block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemAllocAsync(&block[i], BYTES, stream));
        fill(block[i], round * BLOCKS + i, stream);
    }
    for (int i = 0; i < BLOCKS; i += 2) OK(cuMemFreeAsync(block[i], stream));
    for (int i = 1; i < BLOCKS; i += 2) kept[i / 2] = block[i];
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxDestroy_v2(own));
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    int beside = strcmp(argv[1], "own") != 0, resets = !strcmp(argv[1], "reset");
    setvbuf(stdout, 0, _IOLBF, 0);
    open_driver();
    OK(cuInit(0));
    CUcontext last = NULL, primary = NULL;
    if (beside) OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxCreate_v2(&last, 0, 0));
    CUstream stream = side_stream();
    CUmemoryPool pool = NULL;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, 4, &(uint64_t){UINT64_MAX}));
    tell("at first");
    CUdeviceptr kept[6][BLOCKS / 2], fresh[BLOCKS];
    for (int round = 0; round < 6; round++) {
        visit(round, kept[round]);
        OK(cuCtxSetCurrent(last));
        for (int i = 0; i < BLOCKS; i++) {
            OK(cuMemAllocAsync(&fresh[i], BYTES, stream));
            fill(fresh[i], 200 + i, stream);
        }
        for (int i = 0; i < BLOCKS; i++) {
            printf("round %d, fresh block holds its own: %d\n", round, holds(fresh[i], 200 + i));
            OK(cuMemFreeAsync(fresh[i], stream));
        }
        for (int old = 0; old <= round; old++)
            for (int i = 0; i < BLOCKS / 2; i++)
                if (!holds(kept[old][i], old * BLOCKS + 2 * i + 1)) printf("block %d of round %d changed\n", i, old);
    }
    tell("with memory");
    if (!beside) {
        printf("release: %d\n", cuDevicePrimaryCtxRelease_v2(0));
        printf("reset: %d\n", cuDevicePrimaryCtxReset_v2(0));
        tell("after both");
        printf("it holds its own: %d\n", holds(kept[0][0], 1));
        OK(cuDevicePrimaryCtxRetain(&primary, 0));
        tell("retained");
        OK(cuCtxSetCurrent(primary));
        printf("it holds its own: %d\n", holds(kept[0][0], 1));
        OK(cuCtxSetCurrent(last));
    }
    for (int round = 0; round < 6; round++)
        for (int i = 0; i < BLOCKS / 2; i++) OK(cuMemFreeAsync(kept[round][i], stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 0));
    if (resets) {
        printf("reset: %d\n", cuDevicePrimaryCtxReset_v2(0));
        tell("reset");
        OK(cuCtxSetCurrent(primary));
        CUdeviceptr none = 0;
        printf("alloc: %d\n", cuMemAlloc_v2(&none, BYTES));
        printf("async: %d\n", cuMemAllocAsync(&none, BYTES, NULL));
        printf("free: %d\n", cuMemFree_v2(kept[0][0]));
        OK(cuDevicePrimaryCtxRetain(&primary, 0));
        OK(cuCtxSetCurrent(primary));
        OK(cuMemAlloc_v2(&none, BYTES));
        OK(cuMemFree_v2(none));
        OK(cuDevicePrimaryCtxRelease_v2(0));
    }
    if (primary) printf("release: %d\n", cuDevicePrimaryCtxRelease_v2(0));
    tell("released");
    printf("once more: %d\n", cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxDestroy_v2(last));
    return 0;
}

/* The end of the primary context takes only its own memory of cuMemAlloc along.
   Argument: `reset` or `release`. */
#include "program.h"

enum { SIZES = 4, EACH = 3 };
static const size_t size[SIZES] = {700, 100000, 3 << 20, 40 << 20};

static int holds(CUdeviceptr block, size_t bytes, unsigned char value) {
    static unsigned char read[40 << 20];
    if (cuMemcpyDtoH_v2(read, block, bytes)) return 0;
    for (size_t i = 0; i < bytes; i++)
        if (read[i] != value) return 0;
    return 1;
}

static int value_of(int kind, int at, int one) { return 1 + kind * SIZES * EACH + at * EACH + one; }

int main(int argc, char **argv) {
    TRUE(argc == 2);
    int resets = !strcmp(argv[1], "reset");
    open_driver();
    OK(cuInit(0));
    CUcontext primary = NULL, other = NULL;
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxCreate_v2(&other, 0, 0));
    CUstream there = side_stream();
    OK(cuCtxSetCurrent(primary));
    CUstream here = side_stream();
    CUdeviceptr block[3][SIZES][EACH];
    for (int at = 0; at < SIZES; at++)
        for (int one = 0; one < EACH; one++) {
            OK(cuCtxSetCurrent(primary));
            OK(cuMemAllocAsync(&block[0][at][one], size[at], here));
            OK(cuMemsetD8Async(block[0][at][one], (unsigned char)value_of(0, at, one), size[at], here));
            OK(cuCtxSetCurrent(other));
            OK(cuMemAllocAsync(&block[1][at][one], size[at], there));
            OK(cuMemsetD8Async(block[1][at][one], (unsigned char)value_of(1, at, one), size[at], there));
            OK(cuMemAlloc_v2(&block[2][at][one], size[at]));
            OK(cuMemsetD8Async(block[2][at][one], (unsigned char)value_of(2, at, one), size[at], there));
        }
    OK(cuStreamSynchronize(there));
    OK(cuCtxSetCurrent(primary));
    CUdeviceptr own = 0;
    OK(cuMemAlloc_v2(&own, 5 << 20));
    OK(cuStreamSynchronize(here));
    if (resets) printf("reset: %d\n", cuDevicePrimaryCtxReset_v2(0));
    printf("release: %d\n", cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxSetCurrent(other));
    for (int kind = 0; kind < 3; kind++)
        for (int at = 0; at < SIZES; at++)
            for (int one = 0; one < EACH; one++) {
                int holding = holds(block[kind][at][one], size[at], (unsigned char)value_of(kind, at, one));
                int freed = kind == 0   ? cuMemFreeAsync(block[0][at][one], there)
                            : kind == 1 ? cuMemFree_v2(block[1][at][one])
                                        : cuMemFree_v2(block[2][at][one]);
                printf("kind %d of %zu bytes: holds its own %d, freed %d\n", kind, size[at], holding, freed);
            }
    printf("of the primary context: %d\n", cuMemFree_v2(own));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    CUdeviceptr again = 0;
    OK(cuMemAllocAsync(&again, 1 << 20, NULL));
    OK(cuMemsetD8Async(again, 9, 1 << 20, NULL));
    printf("anew: %d\n", holds(again, 1 << 20, 9));
    OK(cuMemFreeAsync(again, NULL));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxDestroy_v2(other));
    return 0;
}

/* cudaMalloc and stream-ordered memory by turns: what one has freed serves the other. Contents are checked, and the
   figures of the default pool tell of stream-ordered memory only. */
#include "streams.h"

enum { BLOCKS = 16, BYTES = 8 << 20 };

static CUdeviceptr block[BLOCKS];

static void fill(CUstream stream, int round) {
    for (int i = 0; i < BLOCKS; i++) OK(cuMemsetD8Async(block[i], (unsigned char)(round * BLOCKS + i + 1), BYTES, stream));
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char last = 0;
        OK(cuMemcpyDtoH_v2(&last, block[i] + BYTES - 1, 1));
        if (last != (unsigned char)(round * BLOCKS + i + 1)) printf("block %d holds %d\n", i, last);
    }
}

static void tell(const char *when, CUmemoryPool pool) {
    unsigned long long used = attribute(pool, USED_NOW), reserved = attribute(pool, RESERVED_NOW);
    printf("%s: used %llu, at most %llu; reserved %s\n", when, used, attribute(pool, USED_HIGH),
           reserved == 0 ? "none" : reserved >= used ? "enough" : "too little");
}

int main(void) {
    start_streams();
    CUmemoryPool pool = NULL;
    CUstream stream = side_stream();
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) OK(cuMemAlloc_v2(&block[i], BYTES));
        fill(stream, 2 * round);
        printf("cudaMalloc: used %llu, at most %llu\n", attribute(pool, USED_NOW), attribute(pool, USED_HIGH));
        for (int i = 0; i < BLOCKS; i++) OK(cuMemFree_v2(block[i]));
        OK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, (void *)&keep_all));
        for (int i = 0; i < BLOCKS; i++) OK(cuMemAllocAsync(&block[i], BYTES, stream));
        fill(stream, 2 * round + 1);
        tell("streams", pool);
        for (int i = 0; i < BLOCKS; i++) OK(cuMemFreeAsync(block[i], stream));
        OK(cuStreamSynchronize(stream));
    }
    /* One block of each, and what is left when only the other is freed. */
    OK(cuMemAlloc_v2(&block[0], BYTES));
    OK(cuMemAllocAsync(&block[1], BYTES, stream));
    OK(cuMemFreeAsync(block[1], stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 0));
    tell("trimmed", pool);
    OK(cuMemsetD8Async(block[0], 77, BYTES, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree_v2(block[0]));
    return 0;
}

/* Stream-ordered memory and plain memory on a driver that refuses pages. Contents are checked. */
#include "program.h"

enum { BYTES = 300000 };

static int holds(CUdeviceptr block, unsigned char value) {
    static unsigned char bytes[BYTES];
    OK(cuMemcpyDtoH_v2(bytes, block, BYTES));
    for (int i = 0; i < BYTES; i++)
        if (bytes[i] != value) return 0;
    return 1;
}

int main(void) {
    start();
    CUstream stream = side_stream();
    CUmemoryPool own = NULL;
    PoolProps properties;
    memset(&properties, 0, sizeof properties);
    properties.type = 1;
    properties.location.type = 1;
    OK(cuMemPoolCreate(&own, &properties));
    for (int round = 0; round < 3; round++) {
        CUdeviceptr block[3] = {0, 0, 0};
        printf("async: %d\n", cuMemAllocAsync(&block[0], BYTES, stream));
        printf("of a pool: %d\n", cuMemAllocFromPoolAsync(&block[1], BYTES, own, stream));
        printf("plain: %d\n", cuMemAlloc_v2(&block[2], BYTES));
        for (int i = 0; i < 3; i++) OK(cuMemsetD8Async(block[i], (unsigned char)(i + 1), BYTES, stream));
        OK(cuStreamSynchronize(stream));
        for (int i = 0; i < 3; i++) printf("holds its own: %d\n", holds(block[i], (unsigned char)(i + 1)));
        uint64_t used = 0;
        OK(cuMemPoolGetAttribute(own, 7, &used));
        printf("used of the pool: %llu\n", (unsigned long long)used);
        OK(cuMemFreeAsync(block[0], stream));
        OK(cuMemFreeAsync(block[1], stream));
        OK(cuMemFree_v2(block[2]));
        OK(cuStreamSynchronize(stream));
    }
    OK(cuMemPoolDestroy(own));
    CUdeviceptr block = 0;
    OK(cuMemAlloc_v2(&block, BYTES));
    printf("on no stream: %d\n", cuMemFreeAsync(block, (CUstream)0x1234560));
    OK(cuMemFree_v2(block));
    return 0;
}

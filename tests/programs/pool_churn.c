/* Many pools, one after another, and then many at once. */
#include "program.h"

enum { AFTER = 3000, AT_ONCE = 200 };

static CUmemoryPool make(void) {
    CUmemoryPool pool = NULL;
    PoolProps properties;
    memset(&properties, 0, sizeof properties);
    properties.type = 1;
    properties.location.type = 1;
    OK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

int main(void) {
    start();
    CUstream stream = side_stream();
    for (int n = 0; n < AFTER; n++) {
        CUmemoryPool pool = make();
        CUdeviceptr block = 0;
        OK(cuMemAllocFromPoolAsync(&block, 100000, pool, stream));
        OK(work(stream, block, 100000, 1, 1000));
        /* Every third pool ends before its block does. */
        if (n % 3 == 0) OK(cuMemPoolDestroy(pool));
        OK(cuMemFreeAsync(block, stream));
        if (n % 3 == 1) OK(cuStreamSynchronize(stream));
        if (n % 3 != 0) OK(cuMemPoolDestroy(pool));
    }
    OK(cuStreamSynchronize(stream));
    CUmemoryPool pool[AT_ONCE];
    CUdeviceptr block[AT_ONCE];
    for (int n = 0; n < AT_ONCE; n++) {
        pool[n] = make();
        printf("pool %d: %d\n", n, cuMemAllocFromPoolAsync(&block[n], 100000, pool[n], stream));
    }
    for (int n = 0; n < AT_ONCE; n++) {
        OK(cuMemFreeAsync(block[n], stream));
        OK(cuMemPoolDestroy(pool[n]));
    }
    OK(cuStreamSynchronize(stream));
    printf("memory is back: %d\n", free_memory() > (size_t)8000 * MIB);
    return 0;
}

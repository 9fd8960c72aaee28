/* Memory of device 0 is freed while device 1 is current, and the other way round. */
#include "program.h"

int main(void) {
    CUcontext context[2];
    context[0] = start();
    OK(cuDevicePrimaryCtxRetain(&context[1], 1));
    CUstream stream[2];
    CUdeviceptr sync[2], async[2];
    size_t before[2], after[2];
    for (int d = 0; d < 2; d++) {
        OK(cuCtxSetCurrent(context[d]));
        stream[d] = side_stream();
        before[d] = free_memory();
    }
    for (int d = 0; d < 2; d++) {
        OK(cuCtxSetCurrent(context[d]));
        sync[d] = allocate((size_t)(4 + 2 * d) * MIB);
        OK(cuMemAllocAsync(&async[d], (size_t)(32 + 32 * d) * MIB, stream[d]));
        printf("# sync %d %llu\n# async %d %llu\n", d, sync[d], d, async[d]);
    }
    for (int d = 0; d < 2; d++) {
        OK(cuCtxSetCurrent(context[1 - d]));
        printf("free async: %d\n", cuMemFreeAsync(async[d], stream[d]));
        printf("free sync: %d\n", cuMemFree_v2(sync[d]));
        CUdevice current = -1;
        OK(cuCtxGetDevice(&current));
        printf("current device: %d\n", current);
    }
    for (int d = 0; d < 2; d++) {
        CUmemoryPool pool = NULL;
        OK(cuCtxSetCurrent(context[d]));
        OK(cuCtxSynchronize());
        OK(cuDeviceGetDefaultMemPool(&pool, d));
        OK(cuMemPoolTrimTo(pool, 0));
        after[d] = free_memory();
        printf("device %d: free as before %d\n", d, before[d] == after[d]);
    }
    return 0;
}

/* Two threads ask for memory of which each has enough once a pool gives back what it keeps, which takes a while: the
   second finds it neither with the pool nor with the driver. With the argument `again`: an address that was freed, in
   a place where something else may be by now, is freed once more. With `full`: while a stream of one device captures, a
   pool that holds all memory of another has to wait for that. */
#include "program.h"

static CUcontext context;

static void *asks(void *unused) {
    CUdeviceptr block = 0;
    OK(cuCtxSetCurrent(context));
    printf("first: %d\n", cuMemAlloc_v2(&block, 500 * MIB));
    return unused;
}

static void at_once(void) {
    CUstream side = side_stream();
    CUdeviceptr block = 0;
    CUmemoryPool pool = NULL;
    unsigned long long all = ~0ull;
    pthread_t thread;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, 4, &all));
    OK(cuMemAllocAsync(&block, 800 * MIB, side));
    OK(cuMemFreeAsync(block, side));
    OK(cuStreamSynchronize(side));
    pthread_create(&thread, NULL, asks, NULL);
    sleep_ms(50);
    CUresult second = cuMemAlloc_v2(&block, 300 * MIB);
    pthread_join(thread, NULL);
    printf("second: %d\n", second);
}

static void again(void) {
    CUstream side = side_stream();
    CUdeviceptr block = 0;
    CUgraph graph = NULL;
    OK(cuMemAllocAsync(&block, 600 * MIB, side));
    OK(cuMemFreeAsync(block, side));
    OK(cuCtxSynchronize());
    OK(cuStreamBeginCapture_v2(side, 2));
    printf("on a stream: %d\n", cuMemFreeAsync(block, NULL));
    printf("on none: %d\n", cuMemFree_v2(block));
    OK(cuStreamEndCapture(side, &graph));
    OK(cuGraphDestroy(graph));
}

static void full(void) {
    CUcontext other = NULL;
    CUstream side = side_stream();
    CUdeviceptr block = 0;
    CUgraph graph = NULL;
    CUmemoryPool pool = NULL;
    unsigned long long nothing = 0;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuDeviceGetDefaultMemPool(&pool, 1));
    OK(cuMemPoolSetAttribute(pool, 4, &nothing));
    OK(cuStreamBeginCapture_v2(side, 2));
    OK(cuCtxSetCurrent(other));
    OK(cuMemAllocAsync(&block, 900 * MIB, NULL));
    OK(cuMemFreeAsync(block, NULL));
    printf("beside a capture: %d\n", cuMemAllocAsync(&block, 300 * MIB, PER_THREAD));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamEndCapture(side, &graph));
    OK(cuGraphDestroy(graph));
}

int main(int argc, char **argv) {
    context = start();
    if (argc > 1 && !strcmp(argv[1], "again")) again();
    else if (argc > 1 && !strcmp(argv[1], "full")) full();
    else at_once();
    return 0;
}

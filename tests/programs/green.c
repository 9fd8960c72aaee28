/* Green contexts: memory that is allocated in one is the primary context's and outlives it; its streams do not.
   Argument: how often one is made and destroyed. */
#include "streams.h"

static CUresult (*green_create)(void **, void *, CUdevice, unsigned), (*green_destroy)(void *);
static CUresult (*from_green)(CUcontext *, void *), (*green_stream)(CUstream *, void *, unsigned, int);

static unsigned read_at(CUdeviceptr address) {
    unsigned value = 0;
    OK(cuMemcpyDtoH_v2(&value, address, sizeof value));
    return value;
}

/* Memory comes and goes in the current context and on a stream, a piece of it under work. */
static void churn(CUstream stream) {
    for (int i = 0; i < 20; i++) {
        CUdeviceptr block[2] = {0};
        size_t bytes = (size_t)(1 + i % 3) * 300000;
        OK(cuMemAlloc_v2(&block[0], bytes));
        OK(cuMemAllocAsync(&block[1], bytes, stream));
        for (int k = 0; k < 2; k++) OK(work(stream, block[k], bytes, 1, 100000));
        OK(cuMemFreeAsync(block[1], stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemFree_v2(block[0]));
    }
}

static void once(CUcontext primary, int round) {
    void *green = NULL;
    CUcontext own = NULL, of = NULL;
    CUstream stream = NULL;
    CUdeviceptr ordered = 0, plain = 0, before = 0, small = 0;
    CUdevice device = -1;
    OK(green_create(&green, (void *)8, 0, 1));
    OK(from_green(&own, green));
    OK(green_stream(&stream, green, 1, 0));
    OK(cuStreamGetCtx(stream, &of));
    printf("a context of its own %d, its stream's %d\n", own != primary, of == own);
    before = allocate(1 * MIB);
    OK(cuMemAllocAsync(&ordered, 1 * MIB, stream));
    OK(cuMemsetD8Async(ordered, 6, 1 * MIB, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuCtxSetCurrent(own));
    OK(cuCtxGetDevice(&device));
    churn(stream);
    /* Memory of the primary context goes back in the green one, and the other way round. */
    OK(cuMemFree_v2(before));
    plain = allocate(1 * MIB);
    small = allocate(1000);
    OK(cuMemsetD8_v2(plain, 4, 1 * MIB));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(primary));
    CUstream beside = side_stream();
    churn(beside);
    OK(cuMemFree_v2(small));
    if (round % 2) OK(cuStreamDestroy_v2(stream));
    SAY("destroy", green_destroy(green));
    churn(beside);
    printf("device %d, ordered %x, plain %x\n", device, read_at(ordered), read_at(plain));
    SAY("free plain", cuMemFree_v2(plain));
    SAY("free ordered", cuMemFree_v2(ordered));
    OK(cuStreamDestroy_v2(beside));
}

/* A capture on a green context's stream leaves nothing behind when that ends. */
static void captures(CUcontext primary) {
    size_t before = 0, after = 0, total = 0;
    /* What pools are not to keep goes back. */
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo_v2(&before, &total));
    for (int i = 0; i < 3; i++) {
        void *green = NULL;
        CUcontext own = NULL;
        CUstream stream = NULL;
        CUgraph graph = NULL;
        OK(green_create(&green, (void *)8, 0, 1));
        OK(from_green(&own, green));
        OK(green_stream(&stream, green, 1, 0));
        OK(cuCtxSetCurrent(own));
        OK(cuStreamBeginCapture_v2(stream, 2));
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphDestroy(graph));
        OK(cuCtxSetCurrent(primary));
        OK(green_destroy(green));
    }
    OK(cuMemGetInfo_v2(&after, &total));
    printf("captures kept %zd\n", (ssize_t)(before - after));
}

/* A green context holds the primary one: its memory lives until the green context ends. */
static void holds(void) {
    void *green = NULL;
    CUcontext own = NULL;
    CUdeviceptr block = allocate(1 * MIB);
    unsigned flags = 0;
    int active = 0;
    OK(cuMemsetD8_v2(block, 7, 1 * MIB));
    OK(cuCtxSynchronize());
    OK(green_create(&green, (void *)8, 0, 1));
    OK(from_green(&own, green));
    SAY("release", cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxSetCurrent(own));
    printf("block %x\n", read_at(block));
    OK(cuMemFree_v2(block));
    block = allocate(2 * MIB);
    OK(cuMemFree_v2(block));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active %d\n", active);
    OK(cuCtxSetCurrent(NULL));
    SAY("destroy", green_destroy(green));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active %d\n", active);
    SAY("release again", cuDevicePrimaryCtxRelease_v2(0));
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    CUcontext primary = start_streams();
    *(void **)&green_create = dlsym(driver, "cuGreenCtxCreate");
    *(void **)&green_destroy = dlsym(driver, "cuGreenCtxDestroy");
    *(void **)&from_green = dlsym(driver, "cuCtxFromGreenCtx");
    *(void **)&green_stream = dlsym(driver, "cuGreenCtxStreamCreate");
    TRUE(green_create && green_destroy && from_green && green_stream);
    for (int round = 0; round < atoi(argv[1]); round++) once(primary, round);
    captures(primary);
    holds();
    printf("done\n");
    return 0;
}

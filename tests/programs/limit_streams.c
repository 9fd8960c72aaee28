/* Stream-ordered memory that the driver serves under GPUSHIM_LIMIT=100M: what a capture records takes nothing of the
   limit, and what a stream of another device than the current one gets is of that device. Argument: `captured` or
   `elsewhere`. */
#include "program.h"

static void free_of(const char *what, CUcontext context) {
    size_t available = 0, total = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuMemGetInfo_v2(&available, &total));
    printf("%s: %llu of %llu MiB are free\n", what, available / MIB, total / MIB);
}

static void captured(CUcontext context) {
    CUstream side = side_stream();
    CUdeviceptr block = 0;
    for (int i = 0; i < 30; i++) {
        CUgraph graph = NULL;
        OK(cuStreamBeginCapture_v2(side, 2));
        OK(cuMemAllocAsync(&block, 10 * MIB, side));
        if (i % 2) OK(cuMemFreeAsync(block, side));
        OK(cuStreamEndCapture(side, &graph));
        OK(cuGraphDestroy(graph));
    }
    free_of("after the captures", context);
    printf("plain: %d\n", cuMemAlloc_v2(&block, 90 * MIB));
}

static void elsewhere(CUcontext context) {
    CUcontext other = NULL;
    CUdeviceptr block = 0;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    CUstream there = side_stream();
    CUcontext currents[] = {context, NULL};
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(currents[i]));
        OK(cuMemAllocAsync(&block, 40 * MIB, there));
        free_of("the stream's device", other);
        free_of("the other", context);
        OK(cuCtxSetCurrent(currents[i]));
        OK(cuMemFreeAsync(block, there));
        OK(cuCtxSetCurrent(other));
        OK(cuCtxSynchronize());
        free_of("the stream's device", other);
    }
}

int main(int argc, char **argv) {
    CUcontext context = start();
    if (argc > 1 && !strcmp(argv[1], "captured")) captured(context);
    else elsewhere(context);
    return 0;
}

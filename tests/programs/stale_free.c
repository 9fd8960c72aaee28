/* Frees an address once more, over and over, while the shim keeps a small allocation of its own there and then gives it
   back: the driver must never hear of such a free while it could succeed. */
#include "program.h"

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(void) {
    CUdeviceptr block = 0, beside = 0;
    size_t pitch = 0;
    CUgraph graph = NULL;
    start();
    CUstream side = side_stream();
    /* A pool: its waiting is what the allocation is for. */
    OK(cuMemAllocAsync(&block, MIB, side));
    OK(cuMemFreeAsync(block, side));
    /* The driver's own, of a few bytes: what the shim allocates next lies there. */
    OK(cuMemAllocPitch_v2(&block, &pitch, 16, 1, 4));
    OK(cuMemAllocPitch_v2(&beside, &pitch, 16, 1, 4));
    OK(cuMemFree_v2(block));
    OK(cuStreamBeginCapture_v2(side, 2));
    OK(cuStreamEndCapture(side, &graph));
    OK(cuGraphDestroy(graph));
    long times = 0, successes = 0;
    for (double begun = seconds(); seconds() - begun < 3; times++) {
        successes += cuMemFree_v2(block) == SUCCESS;
        usleep(500);
    }
    printf("%d freed once more %ld times\n", times > 20, successes);
    return 0;
}

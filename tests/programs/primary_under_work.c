/* The primary context ends while another context's stream has still to use, and then to free, stream-ordered memory.
   Argument: `reset` or `release`, then `capture` if a stream of the other context captures meanwhile. */
#include "program.h"

enum { RELAXED = 2, BLOCKS = 3 };
static const size_t size[BLOCKS] = {700, 1 << 20, 40 << 20};
static const uint64_t duration = 20 * 1000 * 1000;

int main(int argc, char **argv) {
    TRUE(argc >= 2);
    int captures = argc > 2;
    open_driver();
    OK(cuInit(0));
    CUcontext primary = NULL, other = NULL;
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxCreate_v2(&other, 0, 0));
    CUstream works = side_stream(), side = side_stream();
    CUgraph graph = NULL;
    for (int at = 0; at < BLOCKS; at++) {
        CUdeviceptr block = 0;
        OK(cuMemAllocAsync(&block, size[at], works));
        OK(work(works, block, size[at], 1, duration));
        OK(cuMemFreeAsync(block, works));
    }
    if (captures) OK(cuStreamBeginCapture_v2(side, RELAXED));
    if (!strcmp(argv[1], "reset")) printf("reset: %d\n", cuDevicePrimaryCtxReset_v2(0));
    printf("release: %d\n", cuDevicePrimaryCtxRelease_v2(0));
    if (captures) {
        printf("end of the capture: %d\n", cuStreamEndCapture(side, &graph));
        OK(cuGraphDestroy(graph));
    }
    OK(cuStreamSynchronize(works));
    return 0;
}

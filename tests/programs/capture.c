/* Allocates and frees inside a capture, replays the graph while other allocations come and go, ends the graph, and
   uses the memory again. Argument: the capture's mode (0 global, 1 thread-local, 2 relaxed). */
#include "program.h"

enum { REPLAYS = 6, OTHERS = 12 };

int main(int argc, char **argv) {
    int mode = argc > 1 ? atoi(argv[1]) : 2, status = -1;
    start();
    CUstream side = side_stream(), other = side_stream();
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    /* Something is in the cache, with unfinished work, before the capture begins. */
    CUdeviceptr early = allocate(1 * MIB);
    OK(work(other, early, 1 * MIB, 1, 2000000));
    OK(cuMemFree_v2(early));

    OK(cuStreamBeginCapture_v2(side, mode));
    CUdeviceptr held = 0, within = 0;
    CUresult result = cuMemAlloc_v2(&held, 1 * MIB);
    printf("# allocate in capture: %d\n", result);
    if (result == SUCCESS) OK(work(side, held, 1 * MIB, 1, 100000));
    result = cuMemAlloc_v2(&within, 3 * MIB);
    printf("# allocate in capture: %d\n", result);
    if (result == SUCCESS) {
        OK(work(side, within, 3 * MIB, 1, 100000));
        result = cuMemFree_v2(within);
        printf("# free in capture: %d\n", result);
    }
    OK(cuStreamIsCapturing(side, &status));
    printf("# status of the capture: %d\n", status);
    result = cuStreamEndCapture(side, &graph);
    printf("# end of the capture: %d\n", result);
    if (result != SUCCESS) return 0;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    /* Freed by the program, but the graph writes there at each replay. */
    OK(cuMemFree_v2(held));
    for (int i = 0; i < REPLAYS; i++) {
        CUdeviceptr block[OTHERS];
        OK(cuGraphLaunch(exec, side));
        for (int k = 0; k < OTHERS; k++) {
            size_t bytes = (k % 2 ? 1 : 3) * MIB;
            block[k] = allocate(bytes);
            OK(work(other, block[k], bytes, 1, 50000));
        }
        for (int k = 0; k < OTHERS; k++) OK(cuMemFree_v2(block[k]));
    }
    OK(cuCtxSynchronize());
    OK(cuGraphExecDestroy(exec));
    CUdeviceptr block[OTHERS];
    for (int k = 0; k < OTHERS; k++) {
        block[k] = allocate(1 * MIB);
        OK(work(other, block[k], 1 * MIB, 1, 50000));
    }
    for (int k = 0; k < OTHERS; k++) OK(cuMemFree_v2(block[k]));
    OK(cuCtxSynchronize());
    printf("done\n");
    return 0;
}

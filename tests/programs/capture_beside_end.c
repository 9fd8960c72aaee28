/* A context ends in one thread while another thread captures: the memory of the graph may lie where the context had its own. */
#include "program.h"
#include <stdatomic.h>

enum { BLOCKS = 8 };

static CUcontext doomed;
static atomic_int is_over;

static void *end(void *argument) {
    (void)argument;
    OK(cuCtxDestroy_v2(doomed));
    is_over = 1;
    return NULL;
}

/* Captures requests of memory and its frees. Returns the number of calls that failed. */
static int capture(CUstream stream) {
    CUdeviceptr blocks[BLOCKS] = {0};
    CUgraph graph = NULL;
    int failed = cuStreamBeginCapture_v2(stream, 2) != SUCCESS;
    for (int i = 0; i < BLOCKS; i++) failed += cuMemAllocAsync(&blocks[i], 100000, stream) != SUCCESS;
    for (int i = 0; i < BLOCKS; i++) failed += cuMemFreeAsync(blocks[i], stream) != SUCCESS;
    failed += cuStreamEndCapture(stream, &graph) != SUCCESS;
    if (graph) OK(cuGraphDestroy(graph));
    return failed;
}

int main(void) {
    CUcontext primary = start();
    pthread_t thread;
    /* A capture of a process with a pool: the shim keeps memory in the context. */
    OK(cuMemFree_v2(allocate(1 * MIB)));
    OK(cuCtxCreate_v2(&doomed, 0, 0));
    CUstream inside = side_stream();
    int failed = capture(inside);
    OK(cuStreamDestroy_v2(inside));
    OK(cuCtxSetCurrent(primary));
    CUstream stream = side_stream();
    TRUE(!pthread_create(&thread, NULL, end, NULL));
    while (!is_over) failed += capture(stream);
    TRUE(!pthread_join(thread, NULL));
    printf("%d calls failed\n", failed + capture(stream));
    return 0;
}

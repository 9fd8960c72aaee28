/* Memory that was freed while streams capture is there again when memory is short, as it would be natively.
   Arguments: `kept` (a graph of the capture lives), `open` (the capture is open), `ended` (the thread that began it
   ended), `two` (one capture of two overlapping ones is open); and `async` or `plain`. On a device of 768 MiB. */
#include "program.h"

static CUcontext context;
static CUstream side;
static int is_async;
enum { LARGE = 512 };

static CUresult take(CUdeviceptr *block, size_t bytes) {
    return is_async ? cuMemAllocAsync(block, bytes, side) : cuMemAlloc_v2(block, bytes);
}

static CUresult give(CUdeviceptr block) { return is_async ? cuMemFreeAsync(block, side) : cuMemFree_v2(block); }

/* A pair while a stream captures, from a thread that captures nothing. */
static void *pair(void *before) {
    CUdeviceptr block = 0;
    OK(cuCtxSetCurrent(context));
    if (before) {
        OK(give(*(CUdeviceptr *)before));
        return NULL;
    }
    OK(take(&block, LARGE * MIB));
    OK(work(side, block, LARGE * MIB, 1, 1000));
    OK(give(block));
    return NULL;
}

static void *begin(void *mode) {
    OK(cuCtxSetCurrent(context));
    OK(cuStreamBeginCapture_v2((CUstream)2, (int)(intptr_t)mode));
    return NULL;
}

static void apart(void *(*body)(void *), void *argument) {
    pthread_t thread;
    TRUE(pthread_create(&thread, NULL, body, argument) == 0);
    TRUE(pthread_join(thread, NULL) == 0);
}

static void try(const char *when) {
    CUdeviceptr block = 0;
    CUresult result = take(&block, LARGE * MIB);
    printf("%s: %d\n", when, result);
    if (result) return;
    OK(work(side, block, LARGE * MIB, 1, 1000));
    OK(give(block));
}

int main(int argc, char **argv) {
    TRUE(argc == 3);
    const char *how = argv[1];
    context = start();
    side = side_stream();
    is_async = !strcmp(argv[2], "async");
    CUmemoryPool pool = NULL;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, 4, &(uint64_t){UINT64_MAX}));
    CUstream stream = side_stream(), other = side_stream();
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr before = 0;
    for (int round = 0; round < 2; round++) {
        if (round) OK(take(&before, LARGE * MIB));
        if (!strcmp(how, "ended"))
            apart(begin, (void *)(intptr_t)(1 + round));
        else
            OK(cuStreamBeginCapture_v2(stream, 2));
        if (!strcmp(how, "two")) OK(cuStreamBeginCapture_v2(other, 2));
        apart(pair, round ? &before : NULL);
        if (!strcmp(how, "kept")) {
            OK(cuStreamEndCapture(stream, &graph));
            OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
            OK(cuGraphDestroy(graph));
        }
        if (!strcmp(how, "two")) OK(cuStreamEndCapture(other, &graph));
        for (int i = 0; i < 6; i++) try("while that holds it");
        /* Many of other sizes. */
        for (int i = 0; i < 300; i++) {
            CUdeviceptr block = 0;
            OK(take(&block, (size_t)(1 + i % 40) * MIB));
            OK(give(block));
        }
        if (!strcmp(how, "open") || !strcmp(how, "two")) OK(cuStreamEndCapture(stream, &graph));
        try("after it");
        if (!strcmp(how, "kept")) OK(cuGraphExecDestroy(exec));
        try("at the end");
    }
    return 0;
}

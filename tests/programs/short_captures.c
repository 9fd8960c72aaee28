/* Memory that is freed while streams capture, and what there is of it when memory is short. On a device of 1 GiB.
   Argument: what happens meanwhile. */
#include "program.h"

enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2, LARGE = 800, MOST = 300 };

static CUcontext context;
static CUdeviceptr early;

static void *passes(void *unused) {
    OK(cuCtxSetCurrent(context));
    OK(cuMemFree_v2(allocate(LARGE * MIB)));
    return unused;
}

static void *frees(void *unused) {
    OK(cuCtxSetCurrent(context));
    OK(cuMemFree_v2(early));
    return unused;
}

static void *begins(void *unused) {
    OK(cuCtxSetCurrent(context));
    OK(cuStreamBeginCapture_v2(PER_THREAD, THREAD_LOCAL));
    return unused;
}

static void in_thread(void *(*what)(void *)) {
    pthread_t thread;
    TRUE(!pthread_create(&thread, NULL, what, NULL) && !pthread_join(thread, NULL));
}

static void ask(const char *when) {
    CUdeviceptr block = 0;
    CUresult result = cuMemAlloc_v2(&block, LARGE * MIB);
    printf("%s: %d\n", when, result);
    if (result == SUCCESS) OK(cuMemFree_v2(block));
    OK(cuCtxSynchronize());
}

/* Every block is freed before the next is asked for. */
static void loop(const char *when) {
    int refused = 0;
    for (int i = 0; i < MOST; i++) {
        CUdeviceptr block = 0;
        if (cuMemAlloc_v2(&block, (1 + i % 40) * MIB) != SUCCESS)
            refused++;
        else
            OK(cuMemFree_v2(block));
    }
    printf("%s: %d refused\n", when, refused);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    context = start();
    CUstream side = side_stream();
    if (!strcmp(what, "other") || !strcmp(what, "freed") || !strcmp(what, "own")) {
        int own = !strcmp(what, "own");
        if (!strcmp(what, "freed")) early = allocate(LARGE * MIB);
        OK(cuStreamBeginCapture_v2(side, own ? GLOBAL : THREAD_LOCAL));
        if (own) {
            CUdeviceptr block = allocate(LARGE * MIB);
            OK(work(side, block, MIB, 1, 1000));
            OK(cuMemFree_v2(block));
        } else {
            in_thread(early ? frees : passes);
        }
        OK(cuStreamEndCapture(side, &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphDestroy(graph));
        OK(cuGraphLaunch(exec, side));
        OK(cuCtxSynchronize());
        ask("with the graph");
        OK(cuGraphLaunch(exec, side));
        OK(cuCtxSynchronize());
        OK(cuGraphExecDestroy(exec));
        ask("without it");
    } else if (!strcmp(what, "open")) {
        OK(cuStreamBeginCapture_v2(side, RELAXED));
        loop("in the capture");
        OK(cuStreamEndCapture(side, &graph));
        loop("with the graph");
        OK(cuGraphDestroy(graph));
    } else if (!strcmp(what, "left")) {
        in_thread(begins);
        loop("after the thread");
    }
    return 0;
}

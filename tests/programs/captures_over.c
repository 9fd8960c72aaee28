/* Memory that waits for captures is free again as soon as nothing can come of them, and counts as free before.
   Argument: `broken` (a capture that the driver has invalidated is open), `context` (the same, and a
   context is made after that is known), `owed` (a capture is over during which a
   stream was synchronised), `graph` (the same, and its graph lives), `ended` (the thread that captures on its default
   stream has ended), `left` (the same, about memory of cuMemAlloc), `green` (the same in a green context), `beside` (the same in another context, and what
   a pool has is wanted as memory of cuMemAlloc), `full` (a capture begins when all memory is cached). On a device of
   768 MiB. */
#include "program.h"

enum { THREAD_LOCAL = 1, RELAXED = 2, LARGE = 512 };
static const size_t large = LARGE * MIB;
static CUcontext context;
static CUstream side, other;
static size_t first = LARGE * MIB;

static void *plain(void *unused) {
    CUdeviceptr block = 0;
    OK(cuCtxSetCurrent(context));
    printf("another thread's: %d\n", cuMemAlloc_v2(&block, large));
    if (block) OK(cuMemFree_v2(block));
    return unused;
}

static void *passes(void *unused) {
    CUdeviceptr block = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAllocAsync(&block, first, other));
    OK(cuMemFreeAsync(block, other));
    OK(cuStreamSynchronize(other));
    return unused;
}

static void *begins(void *unused) {
    OK(cuCtxSetCurrent(context));
    OK(cuStreamBeginCapture_v2((CUstream)2, RELAXED));
    return unused;
}

static void apart(void *(*body)(void *)) {
    pthread_t thread;
    TRUE(pthread_create(&thread, NULL, body, NULL) == 0);
    TRUE(pthread_join(thread, NULL) == 0);
}

static CUcontext green_context(void) {
    CUresult (*create)(void **, void *, CUdevice, unsigned), (*from)(CUcontext *, void *);
    void *green = NULL;
    CUcontext own = NULL;
    *(void **)&create = dlsym(driver, "cuGreenCtxCreate");
    *(void **)&from = dlsym(driver, "cuCtxFromGreenCtx");
    TRUE(create && from);
    OK(create(&green, (void *)8, 0, 1));
    OK(from(&own, green));
    return own;
}

static void tell(const char *when) {
    size_t free = 0, total = 0;
    OK(cuMemGetInfo_v2(&free, &total));
    printf("%s: %d\n", when, free > large);
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    context = start();
    side = side_stream();
    other = side_stream();
    CUgraph graph = NULL;
    if (!strcmp(argv[1], "broken") || !strcmp(argv[1], "context")) {
        CUevent event = NULL;
        CUdeviceptr block = 0;
        OK(cuEventCreate(&event, 0));
        OK(cuStreamBeginCapture_v2(side, THREAD_LOCAL));
        printf("# refused natively: %d\n", cuMemAlloc_v2(&block, large));
        if (block) OK(cuMemFree_v2(block));
        printf("breaks it: %d\n", cuEventQuery(event));
        apart(plain);
        if (!strcmp(argv[1], "context")) {
            CUcontext before = context;
            OK(cuCtxCreate_v2(&context, 0, 0));
            block = 0;
            printf("# refused natively: %d\n", cuMemAlloc_v2(&block, large));
            if (block) OK(cuMemFree_v2(block));
            context = before;
            apart(passes);
            OK(cuCtxSetCurrent(before));
        }
        printf("end: %d\n", cuStreamEndCapture(side, &graph));
        apart(plain);
    } else if (!strcmp(argv[1], "ended")) {
        CUdeviceptr block = 0;
        first = 400 * MIB;
        apart(begins);
        apart(passes);
        printf("more than that: %d\n", cuMemAllocAsync(&block, 500 * MIB, other));
        OK(cuMemFreeAsync(block, other));
        OK(cuStreamSynchronize(other));
        tell("free");
    } else if (!strcmp(argv[1], "beside")) {
        CUcontext first = context;
        CUdeviceptr block = 0;
        OK(cuCtxCreate_v2(&context, 0, 0));
        apart(begins);
        OK(cuCtxSetCurrent(first));
        for (int i = 0; i < 2; i++) {
            printf("stream-ordered: %d\n", cuMemAllocAsync(&block, large, (CUstream)1));
            OK(cuMemFreeAsync(block, (CUstream)1));
            OK(cuCtxSynchronize());
            printf("plain: %d\n", cuMemAlloc_v2(&block, large));
            OK(cuMemFree_v2(block));
        }
    } else if (!strcmp(argv[1], "full")) {
        CUcontext first = context;
        CUdeviceptr block = 0, all[512];
        int n = 0;
        OK(cuCtxCreate_v2(&context, 0, 0));
        while (n < 512 && cuMemAlloc_v2(&all[n], 2 * MIB) == SUCCESS) n++;
        while (n > 0) OK(cuMemFree_v2(all[--n]));
        OK(cuCtxSetCurrent(first));
        OK(cuStreamBeginCapture_v2(side, RELAXED));
        printf("beside what is cached elsewhere: %d\n", cuMemAlloc_v2(&block, 1 << 20));
        OK(cuMemFree_v2(block));
        printf("end: %d\n", cuStreamEndCapture(side, &graph));
    } else if (!strcmp(argv[1], "left") || !strcmp(argv[1], "green")) {
        CUdeviceptr block = 0;
        CUcontext primary = context;
        /* Nothing waits for a green context's work then: what is freed cannot be reused. */
        size_t bytes = (strcmp(argv[1], "green") ? 300 : 100) * MIB;
        if (!strcmp(argv[1], "green")) context = green_context();
        apart(begins);
        context = primary;
        for (int i = 0; i < 3; i++) {
            printf("allocation: %d\n", cuMemAlloc_v2(&block, bytes + (size_t)i));
            printf("free: %d\n", cuMemFree_v2(block));
        }
    } else {
        OK(cuStreamBeginCapture_v2(side, RELAXED));
        apart(passes);
        tell("free in the capture");
        OK(cuStreamEndCapture(side, &graph));
        if (strcmp(argv[1], "graph")) OK(cuGraphDestroy(graph));
        tell("free after it");
        apart(plain);
        if (!strcmp(argv[1], "graph")) OK(cuGraphDestroy(graph));
        tell("free at the end");
    }
    return 0;
}

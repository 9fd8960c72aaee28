/* Frees an address once more, over and over, while the shim keeps a small allocation of its own there and then gives it
   back: the driver must never hear of such a free while it could succeed. Argument: "coming" if the shim is to allocate
   it anew now and then, in another thread. */
#include "program.h"
#include <pthread.h>

static CUcontext context;
static volatile int is_over;

static void capture(CUstream stream) {
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture_v2(stream, 2));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
}

/* Each capture comes so late that what was kept for the one before has gone back. */
static void *captures(void *stream) {
    OK(cuCtxSetCurrent(context));
    while (!is_over) {
        capture(stream);
        usleep(800000);
    }
    return NULL;
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    CUdeviceptr block = 0, beside = 0;
    size_t pitch = 0;
    int coming = argc > 1 && !strcmp(argv[1], "coming");
    pthread_t thread;
    start();
    OK(cuCtxGetCurrent(&context));
    CUstream side = side_stream();
    /* A pool: its waiting is what the allocation is for. */
    OK(cuMemAllocAsync(&block, MIB, side));
    OK(cuMemFreeAsync(block, side));
    /* The driver's own, of a few bytes: what the shim allocates next lies there. */
    OK(cuMemAllocPitch_v2(&block, &pitch, 16, 1, 4));
    OK(cuMemAllocPitch_v2(&beside, &pitch, 16, 1, 4));
    OK(cuMemFree_v2(block));
    if (coming) TRUE(!pthread_create(&thread, NULL, captures, side));
    else capture(side);
    long times = 0, successes = 0;
    for (double begun = seconds(); seconds() - begun < 3; times++) {
        successes += cuMemFree_v2(block) == SUCCESS;
        usleep(500);
    }
    is_over = 1;
    if (coming) TRUE(!pthread_join(thread, NULL));
    printf("%d freed once more %ld times\n", times > 20, successes);
    return 0;
}

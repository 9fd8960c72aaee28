/* Uses CUDA until the very end: from handlers of exit, registered before and after its first use, and, with an
   argument, from a thread that is still at it when main returns. */
#include "program.h"

static CUdeviceptr kept[2];

static void last(const char *when, CUdeviceptr block) {
    CUdeviceptr other = 0;
    printf("%s: free %d", when, cuMemFree_v2(block));
    printf(", allocate %d", cuMemAlloc_v2(&other, 4096));
    printf(", free %d\n", cuMemFree_v2(other));
    fflush(stdout);
}

static void registered_first(void) { last("registered first", kept[0]); }
static void registered_last(void) { last("registered last", kept[1]); }

static void *busy(void *context) {
    cuCtxSetCurrent(context);
    for (;;) {
        CUdeviceptr block = 0;
        if (cuMemAlloc_v2(&block, 100000) == SUCCESS) cuMemFree_v2(block);
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    atexit(registered_first);
    CUcontext context = start();
    for (int i = 0; i < 2; i++) kept[i] = allocate(5000);
    atexit(registered_last);
    pthread_t thread;
    if (argc > 1) {
        OK(pthread_create(&thread, NULL, busy, context));
        sleep_ms(5);
    }
    return 5;
}

/* A thread is cancelled while the driver works for it: it ends at its next cancellation point, and the process goes
   on. For a driver that takes half a second for an allocation. */
#include "program.h"

static CUcontext context;

static void *asks(void *unused) {
    CUdeviceptr block = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&block, 64 * MIB));
    OK(cuMemFree_v2(block));
    pthread_testcancel();
    return unused;
}

int main(void) {
    pthread_t thread;
    void *result = NULL;
    context = start();
    TRUE(!pthread_create(&thread, NULL, asks, NULL));
    sleep_ms(200);
    TRUE(!pthread_cancel(thread) && !pthread_join(thread, &result));
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);
    OK(cuMemFree_v2(allocate(2 * MIB)));
    printf("done\n");
    return 0;
}

/* Two threads, each on a device of its own and now and then on the other's; blocks are freed by either. */
#include "program.h"

enum { ROUNDS = 400 };

static CUcontext context[2];
static CUdeviceptr handed[2][ROUNDS];

static void *run(void *argument) {
    int home = (int)(intptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        int device = i % 7 == 0 ? 1 - home : home;
        CUdevice now = -1;
        unsigned ordinal = 9;
        CUdeviceptr block = 0;
        OK(cuCtxSetCurrent(context[device]));
        block = allocate((size_t)(1 + i % 5) * 100000);
        OK(cuPointerGetAttribute(&ordinal, 9, block));
        if ((int)ordinal != device) die("a block of another device", (int)ordinal, device);
        if (i % 2) OK(cuMemFree_v2(block));
        else handed[home][i] = block;
        OK(cuCtxGetDevice(&now));
        TRUE(now == device);
    }
    return NULL;
}

int main(void) {
    pthread_t thread[2];
    context[0] = start();
    OK(cuDevicePrimaryCtxRetain(&context[1], 1));
    for (intptr_t t = 0; t < 2; t++) OK(pthread_create(&thread[t], NULL, run, (void *)t));
    for (int t = 0; t < 2; t++) OK(pthread_join(thread[t], NULL));
    int frees = 0;
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < ROUNDS; i++)
            if (handed[t][i]) {
                OK(cuMemFree_v2(handed[t][i]));
                frees++;
            }
    printf("freed by another thread: %d\n", frees);
    return 0;
}

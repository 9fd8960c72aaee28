/* The first thread ends before the others; the process ends with the last of them. */
#include "program.h"

static CUcontext context;

static void at_end(void) { puts("the end"); }

static void *works(void *unused) {
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 20; i++) {
        OK(cuMemFree_v2(allocate((1 + i) * MIB)));
        sleep_ms(10);
    }
    puts("the last thread returns");
    return unused;
}

int main(void) {
    pthread_t thread;
    context = start();
    OK(cuMemFree_v2(allocate(MIB)));
    atexit(at_end);
    TRUE(!pthread_create(&thread, NULL, works, NULL));
    TRUE(!pthread_detach(thread));
    pthread_exit(NULL);
}

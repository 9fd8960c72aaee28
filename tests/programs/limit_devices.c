/* Memory of each class on two devices under GPUSHIM_LIMIT=1G: each device has its own; and many threads that ask at
   once. Argument: `devices`, or the class that threads ask for. */
#include "program.h"

enum { CLASSES = 4, THREADS = 8 };
static const char *const names[CLASSES] = {"pooled", "pitched", "stream-ordered", "pages"};

static CUcontext context;
static int class, got;
static pthread_barrier_t barrier;

static CUresult take(int class, int device, size_t bytes, CUdeviceptr *block) {
    size_t pitch = 0;
    AllocationProp on_device = {.type = 1, .location = {1, device}};
    switch (class) {
    case 0: return cuMemAlloc_v2(block, bytes);
    case 1: return cuMemAllocPitch_v2(block, &pitch, MIB, bytes / MIB, 4);
    case 2: return cuMemAllocAsync(block, bytes, PER_THREAD);
    default: return cuMemCreate(block, bytes, &on_device, 0);
    }
}

static void give(int class, CUdeviceptr block) {
    if (class == 3)
        OK(cuMemRelease(block));
    else if (class == 2)
        OK(cuMemFreeAsync(block, PER_THREAD));
    else
        OK(cuMemFree_v2(block));
    OK(cuCtxSynchronize());
}

static void *asks(void *unused) {
    CUdeviceptr block = 0;
    OK(cuCtxSetCurrent(context));
    pthread_barrier_wait(&barrier);
    if (take(class, 0, 500 * MIB, &block) == SUCCESS) __atomic_fetch_add(&got, 1, __ATOMIC_SEQ_CST);
    return unused;
}

int main(int argc, char **argv) {
    CUcontext other = NULL;
    context = start();
    if (argc > 1 && !strcmp(argv[1], "devices")) {
        OK(cuDevicePrimaryCtxRetain(&other, 1));
        for (int i = 0; i < CLASSES; i++) {
            CUdeviceptr first = 0, second = 0, third = 7;
            size_t available = 0, total = 0;
            OK(cuCtxSetCurrent(other));
            CUresult there = take(i, 1, 700 * MIB, &second);
            OK(cuCtxSetCurrent(context));
            OK(cuMemGetInfo_v2(&available, &total));
            CUresult here = take(i, 0, 700 * MIB, &first);
            printf("%s: %d and %d, %llu MiB were free", names[i], there, here, available / MIB);
            printf(", then %d\n", take(i, 0, 700 * MIB, &third));
            if (here == SUCCESS) give(i, first);
            OK(cuCtxSetCurrent(other));
            if (there == SUCCESS) give(i, second);
        }
        return 0;
    }
    for (int i = 0; argc > 1 && i < CLASSES; i++)
        if (!strcmp(argv[1], names[i])) class = i;
    pthread_t thread[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) TRUE(!pthread_create(&thread[i], NULL, asks, NULL));
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    printf("got %d, the driver has %llu MiB\n", got, driver_free() / MIB);
    return 0;
}

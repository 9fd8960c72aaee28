/* Threads with their default stream, streams or contexts come and go, each with a block.
   Arguments: `threads`, `streams` or `contexts`, and how many. Notes how much memory the process took meanwhile. */
#include "program.h"

static CUcontext context;

static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    TRUE(file && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return pages * 4;
}

static void use(CUstream stream) {
    CUdeviceptr block = 0;
    OK(cuMemAllocAsync(&block, 100000, stream));
    OK(work(stream, block, 100000, 1, 1000));
    OK(cuMemFreeAsync(block, stream));
}

static void *thread(void *unused) {
    (void)unused;
    OK(cuCtxSetCurrent(context));
    use((CUstream)2);
    return NULL;
}

static void once(const char *what) {
    if (!strcmp(what, "threads")) {
        pthread_t id;
        TRUE(pthread_create(&id, NULL, thread, NULL) == 0);
        TRUE(pthread_join(id, NULL) == 0);
        return;
    }
    CUcontext own = NULL;
    if (!strcmp(what, "contexts")) OK(cuCtxCreate_v2(&own, 0, 0));
    CUstream stream = side_stream();
    use(stream);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    if (own) OK(cuCtxDestroy_v2(own));
}

int main(int argc, char **argv) {
    TRUE(argc == 3);
    long count = atol(argv[2]), before = 0;
    context = start();
    CUmemoryPool pool = NULL;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, 4, &(uint64_t){UINT64_MAX}));
    for (long n = 0; n < count; n++) {
        if (n == count / 4) before = resident();
        once(argv[1]);
    }
    printf("# grown %ld\n", resident() - before);
    OK(cuCtxSynchronize());
    return 0;
}

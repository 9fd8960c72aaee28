/* Threads with their default stream, streams or contexts come and go, each with a block.
   Arguments: `threads`, `streams` or `contexts`, and how many. Notes how much memory the process took from the first
   quarter of them on, in KiB, and the processor time of each in the first and in the last quarter, in nanoseconds. */
#include "program.h"

static CUcontext context;

/* Memory of the process alone, without the pages of files, which the trace is in; KiB. */
static long resident(void) {
    char line[200];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    TRUE(file);
    while (kib < 0 && fgets(line, sizeof line, file)) sscanf(line, "RssAnon: %ld", &kib);
    fclose(file);
    TRUE(kib >= 0);
    return kib;
}

static long long processor_time(void) {
    struct timespec time;
    TRUE(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
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
    long count = atol(argv[2]), quarter = count / 4, before = 0;
    long long first = 0, last = 0;
    context = start();
    CUmemoryPool pool = NULL;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, 4, &(uint64_t){UINT64_MAX}));
    // The first ones open the trace, start threads and fill tables.
    for (int n = 0; n < 16; n++) once(argv[1]);
    first -= processor_time();
    for (long n = 0; n < count; n++) {
        if (n == quarter) {
            before = resident();
            first += processor_time();
        }
        if (n == count - quarter) last -= processor_time();
        once(argv[1]);
    }
    last += processor_time();
    printf("# grown %ld\n# first %lld\n# last %lld\n", resident() - before, first / quarter, last / quarter);
    OK(cuCtxSynchronize());
    return 0;
}

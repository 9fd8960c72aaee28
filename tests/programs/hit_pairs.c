/* Pairs of an allocation and a free that the cache serves, for tests that count calls and scripts/instructions. Arguments:
   DOOR     runtime (cudaMalloc), runtime-async (cudaMallocAsync), driver (cuMemAlloc), driver-async (cuMemAllocAsync)
   SIZES    one, or mixed: seven sizes in turn
   THREADS  each on a stream of its own
   PAIRS    of each thread, in rounds of 256
   Prints how many calls of the runtime the pairs of the first thread made. */
#include "cudart.h"
#include "program.h"

typedef void *Handle;
int cudaMallocAsync(void **, size_t, Handle), cudaFreeAsync(void *, Handle);
int cudaStreamCreateWithFlags(Handle *, unsigned);
uint64_t cudaStandinCalls(void);

enum { ROUND = 256, MOST = 16, NON_BLOCKING = 1 };

static const char *door;
static int mixed, threads;
static long pairs;
static pthread_barrier_t gate;

static size_t size_of(int i) { return mixed ? (size_t)65536 << (i % 7) : 1 << 20; }

/* Both are made for each door on its own: no door pays for a choice among them. */
#define ROUNDS(name, allocate, release) \
    static void name(long count, Handle stream) { \
        (void)stream; \
        for (long i = 0; i < count; i++) { \
            CUdeviceptr block = 0; \
            OK(allocate); \
            OK(release); \
        } \
    }
ROUNDS(by_runtime, cudaMalloc((void **)&block, size_of(i)), cudaFree((void *)block))
ROUNDS(by_runtime_async, cudaMallocAsync((void **)&block, size_of(i), stream), cudaFreeAsync((void *)block, stream))
ROUNDS(by_driver, cuMemAlloc_v2(&block, size_of(i)), cuMemFree_v2(block))
ROUNDS(by_driver_async, cuMemAllocAsync(&block, size_of(i), stream), cuMemFreeAsync(block, stream))

/* What scripts/instructions counts. */
__attribute__((noinline)) static void counted(void (*rounds)(long, Handle), Handle stream) {
    rounds(ROUND, stream);
    __asm__ volatile("");
}

/* Cached blocks for a round. */
static void fill(Handle stream, int is_async) {
    CUdeviceptr blocks[ROUND];
    for (int i = 0; i < ROUND; i++) OK(is_async ? cuMemAllocAsync(&blocks[i], size_of(i), stream) : cuMemAlloc_v2(&blocks[i], size_of(i)));
    pthread_barrier_wait(&gate);
    for (int i = 0; i < ROUND; i++) OK(is_async ? cuMemFreeAsync(blocks[i], stream) : cuMemFree_v2(blocks[i]));
    OK(cuCtxSynchronize());
}

static void *run(void *number) {
    int is_async = strstr(door, "async") != NULL, is_runtime = strstr(door, "runtime") != NULL;
    void (*rounds)(long, Handle) = is_async ? is_runtime ? by_runtime_async : by_driver_async : is_runtime ? by_runtime : by_driver;
    Handle stream = NULL;
    OK(cudaSetDevice(0));
    OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    fill(stream, is_async);
    pthread_barrier_wait(&gate);
    rounds(ROUND, stream);
    OK(cuCtxSynchronize());
    pthread_barrier_wait(&gate);
    uint64_t before = cudaStandinCalls();
    /* What was freed without a stream is free again when the context is idle. */
    for (long done = 0; done < pairs; done += ROUND) {
        counted(rounds, stream);
        OK(cuCtxSynchronize());
    }
    if (!number) printf("# calls: %llu\n", (unsigned long long)(cudaStandinCalls() - before));
    pthread_barrier_wait(&gate);
    return NULL;
}

int main(int argc, char **argv) {
    TRUE(argc == 5);
    door = argv[1], mixed = !strcmp(argv[2], "mixed"), threads = atoi(argv[3]), pairs = atol(argv[4]);
    TRUE(threads > 0 && threads <= MOST);
    uint64_t all = UINT64_MAX;
    CUmemoryPool pool = NULL;
    start();
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, 4, &all));
    pthread_t others[MOST];
    pthread_barrier_init(&gate, NULL, threads);
    for (long i = 1; i < threads; i++) TRUE(pthread_create(&others[i], NULL, run, (void *)i) == 0);
    run(NULL);
    for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
    return 0;
}

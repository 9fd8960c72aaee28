/* Threads that allocate, work, free and synchronise at random on streams of every kind. Arguments: threads, operations
   of each, seed. Every block's work is on one stream; a block may be freed by another thread than allocated it. */
#include "program.h"
#include <stdatomic.h>

enum { SLOTS = 48, STREAMS = 6, SHARED = 64 };

typedef struct { CUdeviceptr address; size_t bytes; CUstream stream; } Block;

static CUcontext context;
static CUstream streams[STREAMS];
static long operations;
static _Atomic long out_of_memory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Block shared[SHARED];
static int shared_count;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void drop(Block *block, uint64_t random) {
    if (random & 1) OK(work(block->stream, block->address, block->bytes, random >> 1 & 1, 10000));
    OK(cuMemFree_v2(block->address));
    block->address = 0;
}

static void *run(void *seed) {
    uint64_t state = 88172645463325252ull * (uint64_t)(uintptr_t)seed + 1;
    Block own[SLOTS] = {{0}};
    OK(cuCtxSetCurrent(context));
    for (long i = 0; i < operations; i++) {
        uint64_t random = next(&state);
        Block *block = &own[random % SLOTS];
        random >>= 8;
        int what = (int)(random % 100);
        random >>= 8;
        if (what < 2) {
            OK(cuStreamSynchronize(streams[random % STREAMS]));
        } else if (what < 3 && random % 16 == 0) {
            OK(cuCtxSynchronize());
        } else if (what < 20 && block->address) {
            OK(work(block->stream, block->address, block->bytes, random & 1, random % 4 * 5000));
        } else if (what < 25) {
            /* A block changes hands: another thread frees it. The per-thread stream does not go with it. */
            Block taken = {0};
            pthread_mutex_lock(&lock);
            if (block->address && block->stream != PER_THREAD && shared_count < SHARED) {
                shared[shared_count++] = *block;
                block->address = 0;
            } else if (!block->address && shared_count > 0) {
                taken = shared[--shared_count];
            }
            pthread_mutex_unlock(&lock);
            if (taken.address) drop(&taken, random);
        } else if (block->address) {
            drop(block, random);
        } else {
            /* Sizes from bytes to a few MiB, small ones more often. */
            int shift = (int)(random % 14);
            block->bytes = 256u + (random >> 8) % ((size_t)512 << shift);
            block->stream = streams[(random >> 40) % STREAMS];
            CUresult result = cuMemAlloc_v2(&block->address, block->bytes);
            if (result == OUT_OF_MEMORY) {
                block->address = 0;
                out_of_memory++;
                continue;
            }
            OK(result);
            OK(work(block->stream, block->address, block->bytes, 1, random % 3 * 5000));
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (own[i].address) drop(&own[i], 0);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 8;
    operations = argc > 2 ? atol(argv[2]) : 20000;
    long seed = argc > 3 ? atol(argv[3]) : 1;
    context = start();
    CUstream blocking = NULL;
    OK(cuStreamCreate(&blocking, 0));
    streams[0] = side_stream();
    streams[1] = side_stream();
    streams[2] = side_stream();
    streams[3] = blocking;
    streams[4] = LEGACY;
    streams[5] = PER_THREAD;
    size_t before = driver_free();
    pthread_t thread[64];
    TRUE(threads <= 64);
    for (long i = 0; i < threads; i++) OK(pthread_create(&thread[i], NULL, run, (void *)(seed * 64 + i + 1)));
    for (int i = 0; i < threads; i++) OK(pthread_join(thread[i], NULL));
    while (shared_count > 0) drop(&shared[--shared_count], 0);
    OK(cuCtxSynchronize());
    printf("# out of memory %ld\n", (long)out_of_memory);
    /* The cache, if there is one, has ten seconds to decay. */
    for (int i = 0; i < 1000 && driver_free() != before; i++) sleep_ms(10);
    printf("free memory as before: %d\n", driver_free() == before);
    return 0;
}

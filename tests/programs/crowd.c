/* Threads that allocate and free on a stream each, as fast as they can, and at times free a block of another thread. Arguments:
   threads, pairs of each. */
#include "program.h"
#include <stdatomic.h>

enum { MOST = 16, SIZES = 5, IN_USE = 7 };

static const size_t sizes[SIZES] = {4096, 70000, 1 << 20, 3 << 20, 5 << 20};
static int threads;
static long pairs;
static CUcontext context;
/* A block for each thread that another one has left there, its work done. */
static _Atomic CUdeviceptr mailbox[MOST];

static void *run(void *argument) {
    long number = (long)argument;
    uint64_t random = 88172645463325252u + (uint64_t)number;
    OK(cuCtxSetCurrent(context));
    CUstream stream = side_stream();
    for (long i = 0; i < pairs; i++) {
        CUdeviceptr block[2] = {0};
        for (int j = 0; j < 2; j++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            size_t bytes = sizes[random % SIZES];
            OK(cuMemAllocAsync(&block[j], bytes, stream));
            if (i % 64 == 0) OK(work(stream, block[j], bytes, 1, 1000));
        }
        if (i % 256 == 0) {
            OK(cuStreamSynchronize(stream));
            block[0] = atomic_exchange(&mailbox[(number + 1) % threads], block[0]);
        }
        for (int j = 1; j >= 0; j--)
            if (block[j]) OK(cuMemFreeAsync(block[j], stream));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

int main(int argc, char **argv) {
    TRUE(argc == 3);
    threads = atoi(argv[1]);
    pairs = atol(argv[2]);
    TRUE(threads > 0 && threads <= MOST);
    context = start();
    CUmemoryPool pool = NULL;
    uint64_t figure = UINT64_MAX;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, 4, &figure));
    pthread_t all[MOST];
    for (long i = 0; i < threads; i++) TRUE(pthread_create(&all[i], NULL, run, (void *)i) == 0);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    for (int i = 0; i < threads; i++)
        if (mailbox[i]) OK(cuMemFreeAsync(mailbox[i], NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolGetAttribute(pool, IN_USE, &figure));
    printf("in use: %llu\n", (unsigned long long)figure);
    return 0;
}

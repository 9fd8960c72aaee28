/* Asks for memory and gives it back as a training does, with nothing of it in use: what the pool does then is the same
   each time. Arguments: plain or streams, rounds, and perhaps "trimmed": what is free goes back as the program waits
   for a stream, now and then. */
#include "streams.h"

enum { LAYERS = 24, STREAMS = 3 };

static CUstream streams[STREAMS];
static int by_stream;

static CUdeviceptr take(size_t bytes, int stream) {
    CUdeviceptr block = 0;
    if (by_stream) OK(cuMemAllocAsync(&block, bytes, streams[stream]));
    else OK(cuMemAlloc_v2(&block, bytes));
    return block;
}

static void give(CUdeviceptr block, int stream) {
    if (by_stream) OK(cuMemFreeAsync(block, streams[stream]));
    else OK(cuMemFree_v2(block));
}

int main(int argc, char **argv) {
    int rounds = argc > 2 ? atoi(argv[2]) : 20;
    by_stream = argc > 1 && !strcmp(argv[1], "streams");
    int trimmed = argc > 3 && !strcmp(argv[3], "trimmed");
    unsigned random = 99;
    start();
    for (int i = 1; i < STREAMS; i++) streams[i] = side_stream();
    uint64_t all = UINT64_MAX;
    if (!trimmed) OK(cuMemPoolSetAttribute(default_pool(0), RELEASE_THRESHOLD, &all));
    for (int round = 0; round < rounds; round++) {
        CUdeviceptr kept[LAYERS], passing;
        if (trimmed && round % 3 == 2) OK(cuCtxSynchronize());
        if (trimmed && round % 7 == 6) OK(cuMemPoolTrimTo(default_pool(0), 1 << 20));
        for (int i = 0; i < LAYERS; i++) {
            random = random * 1103515245u + 12345u;
            size_t bytes = ((size_t)4096 << (random >> 16) % 12) + (random >> 8) % 5000;
            int stream = (int)(random >> 28) % STREAMS;
            passing = take(bytes / 3 + 1, stream);
            kept[i] = take(bytes, i % STREAMS);
            give(passing, stream);
        }
        /* Now and then one stays. */
        for (int i = LAYERS - 1; i >= (round % 5 == 0); i--) give(kept[i], i % STREAMS);
    }
    printf("done\n");
    return 0;
}

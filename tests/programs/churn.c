/* Frees blocks under unfinished work on streams of every kind and allocates again at once, without synchronising:
   what a program may do because cudaFree waits for the device. Arguments: rounds, 1 to synchronise now and then. */
#include "program.h"

enum { SLOTS = 12, STREAMS = 5 };

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100, synchronises = argc > 2 && atoi(argv[2]);
    static const size_t sizes[] = {512, 4096, 65536, 300000, 2 * MIB, 3 * MIB};
    CUdeviceptr block[SLOTS] = {0};
    size_t size[SLOTS] = {0};
    CUstream home[SLOTS] = {0}; /* all work on a block is on one stream: the program itself has no race */
    unsigned random = 12345;
    start();
    CUstream blocking = NULL;
    OK(cuStreamCreate(&blocking, 0));
    CUstream stream[STREAMS] = {side_stream(), side_stream(), LEGACY, PER_THREAD, blocking};
    for (int round = 0; round < rounds; round++) {
        random = random * 1103515245u + 12345u;
        int slot = (int)(random >> 16) % SLOTS;
        if (block[slot]) {
            OK(work(home[slot], block[slot], size[slot], (random >> 20) & 1, 100000));
            OK(cuMemFree_v2(block[slot]));
        }
        size[slot] = sizes[(random >> 4) % (sizeof sizes / sizeof *sizes)];
        home[slot] = stream[(random >> 12) % STREAMS];
        block[slot] = allocate(size[slot]);
        OK(work(home[slot], block[slot], size[slot], 1, 150000));
        if (synchronises && round % 16 == 15) OK(cuCtxSynchronize());
        if (synchronises && round % 5 == 4) OK(cuStreamSynchronize(home[slot]));
    }
    for (int i = 0; i < SLOTS; i++)
        if (block[i]) OK(cuMemFree_v2(block[i]));
    OK(cuCtxSynchronize());
    printf("done\n");
    return 0;
}

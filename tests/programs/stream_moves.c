/* Memory in pieces that no large block fits between, then a block that needs several of them. What the pieces held is
   read back first; what lies between must keep its bytes. Argument: where the large block is asked for, `same` (the
   stream that the pieces were freed on), `other` (ordered after it by an event), `unordered` (neither), each while the
   frees are unfinished, or `synchronized` (after the host has waited). A note says how often there was room. */
#include "streams.h"

enum { PIECES = 6, ROUNDS = 20 };

int main(int argc, char **argv) {
    TRUE(argc == 2);
    const char *how = argv[1];
    int moved = 0;
    unsigned char *seen = NULL;
    size_t total = 0;
    CUevent event = NULL;
    CUmemoryPool pool = NULL;
    start_streams();
    OK(cuDeviceTotalMem_v2(&total, 0));
    OK(cuEventCreate(&event, 2));
    CUstream first = side_stream(), second = side_stream();
    CUstream asking = !strcmp(how, "same") || !strcmp(how, "synchronized") ? first : second;
    pool = default_pool(0);
    OK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, (void *)&keep_all));
    /* A copy to other host memory would wait. */
    OK(cuMemHostAlloc((void **)&seen, PIECES, 0));
    /* Three quarters of the memory, in multiples of what drivers take memory in. */
    size_t bytes = total / 8 / (32 * MIB) * (32 * MIB), large = 3 * bytes;
    TRUE(bytes >= 32 * MIB);
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr piece[PIECES], block = 0;
        for (int i = 0; i < PIECES; i++) {
            OK(cuMemAllocAsync(&piece[i], bytes, first));
            OK(touch(first, piece[i], bytes, 1, 100000));
            OK(cuMemsetD8Async(piece[i] + bytes - 1, (unsigned char)(round * PIECES + i), 1, first));
        }
        for (int i = 0; i < PIECES; i += 2) {
            OK(cuMemcpyDtoHAsync_v2(&seen[i], piece[i] + bytes - 1, 1, first));
            OK(cuMemFreeAsync(piece[i], first));
        }
        if (!strcmp(how, "synchronized")) OK(cuStreamSynchronize(first));
        if (!strcmp(how, "other")) {
            OK(cuEventRecord(event, first));
            OK(cuStreamWaitEvent(second, event, 0));
        }
        CUresult result = cuMemAllocAsync(&block, large, asking);
        TRUE(result == SUCCESS || result == OUT_OF_MEMORY);
        if (result == SUCCESS) {
            moved++;
            OK(touch(asking, block, large, 1, 100000));
            OK(cuMemsetD8Async(block, 255, 1, asking));
            OK(cuMemsetD8Async(block + large - 1, 255, 1, asking));
            OK(cuMemFreeAsync(block, asking));
        }
        for (int i = 1; i < PIECES; i += 2) {
            OK(touch(first, piece[i], bytes, 0, 1000));
            OK(cuMemcpyDtoHAsync_v2(&seen[i], piece[i] + bytes - 1, 1, first));
            OK(cuMemFreeAsync(piece[i], first));
        }
        OK(cuStreamSynchronize(first));
        OK(cuStreamSynchronize(second));
        for (int i = 0; i < PIECES; i++) TRUE(seen[i] == round * PIECES + i);
    }
    OK(cuMemPoolTrimTo(pool, 0));
    printf("reserved at the end: %llu\n", attribute(pool, RESERVED_NOW));
    printf("# moved %d\n", moved);
    return 0;
}

/* Takes memory in steps of 10 MiB until there is none, in each of three ways; says what it was told there is. */
#include "program.h"

int main(void) {
    size_t available = 0, total = 0;
    CUdeviceptr block[64];
    start();
    OK(cuMemGetInfo_v2(&available, &total));
    printf("free %llu of %llu\n", available / MIB, total / MIB);
    for (int round = 0; round < 2; round++) {
        int n = 0;
        CUresult result = SUCCESS;
        while (n < 64 && (result = cuMemAlloc_v2(&block[n], 10 * MIB)) == SUCCESS) n++;
        OK(cuMemGetInfo_v2(&available, &total));
        printf("got %d, then %d; free %llu of %llu\n", n, result, available / MIB, total / MIB);
        while (n > 0) OK(cuMemFree_v2(block[--n]));
        OK(cuMemGetInfo_v2(&available, &total));
        printf("freed; free %llu of %llu\n", available / MIB, total / MIB);
    }
    /* What others hold counts, and the cache makes room for it. */
    CUstream side = side_stream();
    int n = 0;
    CUresult result = SUCCESS;
    while (n < 64 && (block[n] = 1, result = cuMemAllocAsync(&block[n], 10 * MIB, side)) == SUCCESS) n++;
    printf("got %d stream-ordered, then %d\n", n, result);
    if (n < 64) printf("the address is 0 then: %d\n", block[n] == 0);
    while (n > 0) OK(cuMemFreeAsync(block[--n], side));
    OK(cuStreamSynchronize(side));
    size_t pitch = 0;
    block[0] = 1;
    printf("pitched, beyond it: %d", cuMemAllocPitch_v2(&block[0], &pitch, 1000, 300 << 10, 4));
    printf("; the address is 0 then: %d\n", block[0] == 0);
    AllocationProp on_host = {.type = 1, .location = {2, 0}};
    CUhandle handle = 0;
    printf("host memory beyond it: %d\n", cuMemCreate(&handle, 400 * MIB, &on_host, 0));
    return 0;
}

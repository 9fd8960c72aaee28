/* A request that cannot be met while memory is held in part: of cudaMalloc's family, or with the argument `async` of a
   stream's. Then waits with memory taken and given back, for what samples the device. */
#include "program.h"

int main(int argc, char **argv) {
    int async = argc > 1 && !strcmp(argv[1], "async");
    CUdeviceptr block[3] = {0}, none = 0;
    start();
    for (int i = 0; i < 3; i++) {
        size_t bytes = (size_t)(i + 1) * MIB;
        OK(async ? cuMemAllocAsync(&block[i], bytes, NULL) : cuMemAlloc_v2(&block[i], bytes));
    }
    OK(async ? cuMemFreeAsync(block[1], NULL) : cuMemFree_v2(block[1]));
    printf("too much: %d\n", async ? cuMemAllocAsync(&none, 4096ull * MIB, NULL) : cuMemAlloc_v2(&none, 4096ull * MIB));
    sleep_ms(1300);
    CUdeviceptr large = 0;
    OK(async ? cuMemAllocAsync(&large, 512 * MIB, NULL) : cuMemAlloc_v2(&large, 512 * MIB));
    printf("# free %zu\n", driver_free());
    sleep_ms(2500);
    return 0;
}

/* What is left in the caller's variables by requests that fail, and what is said of addresses around blocks. */
#include "program.h"

int main(void) {
    CUdeviceptr block = 77, base = 0;
    size_t size = 0;
    start();
    CUresult result = cuMemAlloc_v2(&block, 1ull << 50);
    printf("refused: %d, %llu\n", result, (unsigned long long)block);
    block = allocate(3000);
    for (int i = 0; i < 2; i++) {
        OK(cuMemGetAddressRange_v2(&base, &size, block + 2000));
        printf("in a block: %d, %zu\n", base == block, size);
        OK(cuMemGetAddressRange_v2(NULL, &size, block));
        OK(cuMemGetAddressRange_v2(&base, NULL, block));
        printf("each alone: %d, %zu\n", base == block, size);
        OK(cuMemFree_v2(block));
        printf("freed: %d\n", cuMemGetAddressRange_v2(&base, &size, block));
        block = allocate(3000);
    }
    return 0;
}

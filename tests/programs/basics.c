/* Null, zero and double frees at the driver's door. */
#include "program.h"

int main(void) {
    start();
    CUdeviceptr block = 0;
    printf("free of null before any allocation: %d\n", cuMemFree_v2(0));
    printf("allocate nothing: %d\n", cuMemAlloc_v2(&block, 0));
    printf("allocate into nowhere: %d\n", cuMemAlloc_v2(NULL, 4096));
    printf("allocate more than there is: %d\n", cuMemAlloc_v2(&block, (size_t)1 << 44));
    printf("allocate all there could be: %d\n", cuMemAlloc_v2(&block, ~(size_t)0));
    block = allocate(4096);
    printf("free of the middle: %d\n", cuMemFree_v2(block + 512));
    printf("free: %d\n", cuMemFree_v2(block));
    printf("free again: %d\n", cuMemFree_v2(block));
    printf("and again: %d\n", cuMemFree_v2(block));
    printf("free of null: %d\n", cuMemFree_v2(0));
    /* A block that went into the cache twice would now be handed out twice. */
    CUdeviceptr blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = allocate(4096);
        OK(cuMemsetD8_v2(blocks[i], (unsigned char)i, 4096));
    }
    int wrong = 0;
    for (int i = 0; i < 8; i++) {
        unsigned char bytes[4096];
        OK(cuMemcpyDtoH_v2(bytes, blocks[i], sizeof bytes));
        for (size_t k = 0; k < sizeof bytes; k++) wrong += bytes[k] != i;
        for (int j = 0; j < i; j++) wrong += blocks[i] < blocks[j] + 4096 && blocks[j] < blocks[i] + 4096;
    }
    printf("wrong bytes or overlaps: %d\n", wrong);
    for (int i = 0; i < 8; i++) printf("free: %d\n", cuMemFree_v2(blocks[i]));
    return 0;
}

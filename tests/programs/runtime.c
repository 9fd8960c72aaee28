/* A program on a shared cudart: null, zero and double frees, copies, hits and misses. */
#include "cudart.h"
#include <stdio.h>

int main(void) {
    void *block = (void *)1, *blocks[4];
    printf("free of null first of all: %d\n", cudaFree(NULL));
    int result = cudaMalloc(&block, 0);
    printf("allocate nothing: %d %d\n", result, block == NULL);
    printf("allocate into nowhere: %d\n", cudaMalloc(NULL, 4096));
    printf("last error: %d\n", cudaGetLastError());
    printf("too much: %d\n", cudaMalloc(&block, (size_t)1 << 44));
    printf("last error: %d, then %d\n", cudaGetLastError(), cudaGetLastError());
    for (int round = 0; round < 3; round++) {
        int wrong = 0;
        for (int i = 0; i < 4; i++) {
            printf("allocate: %d\n", cudaMalloc(&blocks[i], 100000));
            cudaMemset(blocks[i], 16 * round + i, 100000);
        }
        for (int i = 0; i < 4; i++) {
            static unsigned char bytes[100000];
            cudaMemcpy(bytes, blocks[i], sizeof bytes, 2);
            for (size_t k = 0; k < sizeof bytes; k++) wrong += bytes[k] != 16 * round + i;
        }
        printf("wrong bytes: %d\n", wrong);
        for (int i = 0; i < 4; i++) printf("free: %d\n", cudaFree(blocks[i]));
    }
    printf("free again: %d\n", cudaFree(blocks[0]));
    printf("last error: %d\n", cudaGetLastError());
    printf("synchronize: %d\n", cudaDeviceSynchronize());
    return 0;
}

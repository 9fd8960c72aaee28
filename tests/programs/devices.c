/* A program on a shared cudart that goes from device to device. */
#include "cudart.h"
#include <stdio.h>

int main(void) {
    void *kept[2][3];
    for (int round = 0; round < 3; round++)
        for (int device = 0; device < 2; device++) {
            int now = -1;
            void *block = NULL;
            printf("set: %d", cudaSetDevice(device));
            /* The first call after the change of device is the allocation. */
            printf(", allocate: %d", cudaMalloc(&block, 1000000));
            printf("\n# allocated %d %llu\n", device, (unsigned long long)block);
            kept[device][round] = block;
            printf("free: %d", cudaFree(block));
            printf(", allocate: %d", cudaMalloc(&kept[device][round], 1000000));
            printf("\n# allocated %d %llu\n", device, (unsigned long long)kept[device][round]);
            printf("get: %d", cudaGetDevice(&now));
            printf(" %d\n", now);
        }
    for (int round = 0; round < 3; round++)
        for (int device = 0; device < 2; device++) printf("free: %d\n", cudaFree(kept[device][round]));
    return 0;
}

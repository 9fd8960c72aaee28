/* A program on a shared cudart that goes from device to device. Freed memory of each is left for the next visit. */
#include "cudart.h"
#include <stdio.h>

int main(void) {
    for (int round = 0; round < 3; round++)
        for (int device = 0; device < 2; device++) {
            int now = -1;
            void *block[2];
            printf("set: %d", cudaSetDevice(device));
            /* The first call after the change of device is the allocation. */
            for (int i = 0; i < 2; i++) {
                printf(", allocate: %d", cudaMalloc(&block[i], 1000000));
                printf("\n# allocated %d %llu\n", device, (unsigned long long)block[i]);
            }
            printf("get: %d", cudaGetDevice(&now));
            printf(" %d\n", now);
            for (int i = 0; i < 2; i++) printf("free: %d\n", cudaFree(block[i]));
            /* All work is known to be done from here on: what is cached could be handed out at once. */
            printf("synchronize: %d\n", cudaDeviceSynchronize());
        }
    return 0;
}

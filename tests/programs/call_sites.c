/* Allocates from a hundred places in the program, three times from each. */
#include "cudart.h"
#include <stdio.h>

#define ONE \
    { \
        void *block = NULL; \
        failures += cudaMalloc(&block, 1000) != 0; \
        failures += cudaFree(block) != 0; \
    }
#define TEN ONE ONE ONE ONE ONE ONE ONE ONE ONE ONE

int main(void) {
    int failures = 0;
    for (int round = 0; round < 3; round++) { TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN }
    printf("failures: %d\n", failures);
    return 0;
}

/* Allocates and frees while no context is current, then goes on with one. */
#include "program.h"

int main(void) {
    CUcontext context = start();
    CUdeviceptr block = allocate(4096), other = 0, gone = allocate(4096);
    OK(cuMemFree_v2(gone));
    OK(cuCtxSetCurrent(NULL));
    printf("allocate: %d\n", cuMemAlloc_v2(&other, 4096));
    printf("free: %d\n", cuMemFree_v2(block));
    printf("free of null: %d\n", cuMemFree_v2(0));
    printf("free again: %d\n", cuMemFree_v2(gone));
    printf("info: %d\n", cuMemGetInfo_v2((size_t[]){0}, (size_t[]){0}));
    OK(cuCtxSetCurrent(context));
    printf("allocate: %d\n", cuMemAlloc_v2(&other, 4096));
    printf("free: %d\n", cuMemFree_v2(other));
    return 0;
}

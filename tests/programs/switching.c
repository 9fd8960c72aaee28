/* Blocks of two contexts on one device, freed from either; a context's memory is not handed out in the other. */
#include "program.h"

int main(void) {
    CUcontext context[2] = {start(), NULL}, popped = NULL;
    OK(cuCtxCreate_v2(&context[1], 0, 0));
    OK(cuCtxPopCurrent_v2(&popped));
    OK(cuCtxSetCurrent(context[0]));
    for (int round = 0; round < 6; round++) {
        CUdeviceptr block[2];
        for (int c = 0; c < 2; c++) {
            CUcontext owner = NULL;
            OK(cuCtxPushCurrent_v2(context[c]));
            block[c] = allocate(1 * MIB);
            OK(cuPointerGetAttribute(&owner, 1, block[c]));
            printf("in its context: %d\n", owner == context[c]);
            OK(cuCtxPopCurrent_v2(&popped));
        }
        OK(cuCtxPushCurrent_v2(context[round % 2]));
        for (int c = 0; c < 2; c++) printf("free: %d\n", cuMemFree_v2(block[c]));
        OK(cuCtxPopCurrent_v2(&popped));
    }
    return 0;
}

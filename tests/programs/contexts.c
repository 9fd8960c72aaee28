/* Contexts end with blocks handed out and blocks cached; what follows must not see them again.
   Argument: `destroy`, `reset` or `release`. */
#include "program.h"

int main(int argc, char **argv) {
    CUcontext primary = start(), own = NULL;
    TRUE(argc == 2);
    const char *how = argv[1];
    int destroys = !strcmp(how, "destroy");
    size_t before = free_memory();
    printf("# before %zu\n", before);
    for (int round = 0; round < 3; round++) {
        CUdeviceptr block[6], left = 0;
        if (destroys) OK(cuCtxCreate_v2(&own, 0, 0));
        CUstream side = side_stream();
        for (int i = 0; i < 6; i++) {
            block[i] = allocate(4 * MIB);
            OK(work(side, block[i], 4 * MIB, 1, 500000));
        }
        for (int i = 0; i < 4; i++) OK(cuMemFree_v2(block[i]));
        left = block[5];
        OK(cuCtxSynchronize());
        if (!strcmp(how, "release")) printf("release: %d\n", cuDevicePrimaryCtxRelease_v2(0));
        if (!strcmp(how, "reset")) printf("reset: %d\n", cuDevicePrimaryCtxReset_v2(0));
        if (destroys) printf("destroy: %d\n", cuCtxDestroy_v2(own));
        if (!destroys) OK(cuDevicePrimaryCtxRetain(&primary, 0));
        OK(cuCtxSetCurrent(primary));
        printf("free of a gone context's block: %d\n", cuMemFree_v2(left));
        CUdeviceptr fresh = allocate(4 * MIB);
        OK(cuMemsetD8_v2(fresh, 1, 4 * MIB));
        OK(cuMemFree_v2(fresh));
        OK(cuCtxSynchronize());
    }
    printf("memory as before: %d\n", free_memory() == before);
    return 0;
}

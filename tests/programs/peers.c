/* A kernel on device 1 works on memory of device 0, which is freed and allocated again under it. */
#include "program.h"

int main(int argc, char **argv) {
    CUcontext context[2];
    int disables = argc > 1 && !strcmp(argv[1], "disable");
    context[0] = start();
    OK(cuDevicePrimaryCtxRetain(&context[1], 1));
    OK(cuCtxSetCurrent(context[1]));
    printf("enable: %d\n", cuCtxEnablePeerAccess(context[0], 0));
    CUstream far = side_stream();
    OK(cuCtxSetCurrent(context[0]));
    CUstream near = side_stream();
    for (int i = 0; i < 40; i++) {
        CUdeviceptr block = allocate(1 * MIB);
        OK(cuCtxSetCurrent(context[i % 2]));
        OK(work(i % 2 ? far : near, block, 1 * MIB, 1, 300000));
        OK(cuCtxSetCurrent(context[i % 3 == 0]));
        OK(cuMemFree_v2(block));
        OK(cuCtxSetCurrent(context[0]));
        if (disables && i == 19) {
            OK(cuCtxSetCurrent(context[1]));
            printf("disable: %d\n", cuCtxDisablePeerAccess(context[0]));
            printf("enable: %d\n", cuCtxEnablePeerAccess(context[0], 0));
            OK(cuCtxSetCurrent(context[0]));
        }
    }
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(context[1]));
    OK(cuCtxSynchronize());
    printf("done\n");
    return 0;
}

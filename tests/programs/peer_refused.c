/* A context enables the use of another's memory, and the driver refuses it for memory that is mapped already: once, after
   which it is enabled, or always, after which it is not. */
#include "program.h"

int main(void) {
    CUcontext context[2];
    void (*mark)(void) = NULL;
    context[0] = start();
    OK(cuDevicePrimaryCtxRetain(&context[1], 1));
    OK(cuCtxSetCurrent(context[1]));
    CUstream far = side_stream();
    OK(cuCtxSetCurrent(context[0]));
    CUdeviceptr block = allocate(1 * MIB);
    OK(cuCtxSetCurrent(context[1]));
    *(void **)&mark = dlsym(driver, "standin_mark");
    mark();
    CUresult enabled = cuCtxEnablePeerAccess(context[0], 0);
    printf("enable: %d\n", enabled);
    if (enabled == SUCCESS) OK(work(far, block, 1 * MIB, 1, 300000));
    OK(cuCtxSynchronize());
    printf("disable: %d\n", cuCtxDisablePeerAccess(context[0]));
    OK(cuCtxSetCurrent(context[0]));
    OK(cuMemFree_v2(block));
    return 0;
}

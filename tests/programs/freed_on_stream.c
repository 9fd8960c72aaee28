/* Memory of cuMemAlloc freed in a stream's order, which the driver accepts, while work of that stream is unfinished. */
#include "program.h"

int main(void) {
    start();
    CUstream stream = side_stream();
    for (int round = 0; round < 20; round++) {
        CUdeviceptr block = allocate(3 * MIB);
        OK(work(stream, block, 3 * MIB, 1, 200000));
        OK(cuMemFreeAsync(block, stream));
        CUdeviceptr next = allocate(3 * MIB);
        OK(work(stream, next, 3 * MIB, 1, 1000));
        OK(cuMemFree_v2(next));
    }
    OK(cuCtxSynchronize());
    printf("done\n");
    return 0;
}

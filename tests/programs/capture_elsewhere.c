/* A stream captures while another context than its own is current, and memory of its context is freed and asked for. */
#include "streams.h"

int main(void) {
    CUcontext primary = start_streams(), other = NULL;
    CUgraph graph = NULL;
    CUdeviceptr block = 0, again = 0;
    OK(cuCtxCreate_v2(&other, 0, 0));
    CUstream captured = side_stream(), beside = side_stream(), third = side_stream();
    OK(cuMemAllocAsync(&block, 600 * MIB, beside));
    OK(cuStreamSynchronize(beside));
    OK(cuCtxSetCurrent(primary));
    OK(cuStreamBeginCapture_v2(captured, 2));
    OK(cuCtxSetCurrent(other));
    /* On no stream: after all work of the context. */
    OK(cuMemFree_v2(block));
    /* For which what was freed has to go back; there may be no room with the sizes of some pools. */
    if (cuMemAllocAsync(&again, 700 * MIB, third) == SUCCESS) OK(cuMemFreeAsync(again, third));
    OK(cuCtxSetCurrent(primary));
    SAY("end of the capture", cuStreamEndCapture(captured, &graph));
    if (graph) OK(cuGraphDestroy(graph));
    OK(cuStreamSynchronize(third));
    OK(cuCtxDestroy_v2(other));
    return 0;
}

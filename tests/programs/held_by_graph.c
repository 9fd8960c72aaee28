/* Memory that a graph writes to is not handed out while the graph lives: under the shim, because natively the
   program's free would have ended it. Notes which of many new blocks overlap it, before and after the graph's end. */
#include "program.h"

enum { MANY = 64 };

static int overlaps(CUdeviceptr held, int many) {
    CUdeviceptr block[2 * MANY];
    int found = 0;
    for (int i = 0; i < many; i++) {
        block[i] = allocate(1 * MIB);
        found += block[i] < held + MIB && held < block[i] + MIB;
    }
    for (int i = 0; i < many; i++) OK(cuMemFree_v2(block[i]));
    return found;
}

int main(void) {
    CUgraph graph = NULL, copy = NULL, outer = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    start();
    CUstream side = side_stream();
    OK(cuStreamBeginCapture_v2(side, 2));
    CUdeviceptr held = allocate(1 * MIB);
    OK(work(side, held, 1 * MIB, 1, 1000));
    OK(cuMemFree_v2(held));
    OK(cuStreamEndCapture(side, &graph));
    printf("# with the graph: %d\n", overlaps(held, MANY));
    OK(cuGraphClone(&copy, graph));
    OK(cuGraphDestroy(graph));
    printf("# with its clone: %d\n", overlaps(held, MANY));
    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, copy));
    OK(cuGraphDestroy(copy));
    printf("# with a parent of its clone: %d\n", overlaps(held, MANY));
    OK(cuGraphInstantiateWithFlags(&exec, outer, 0));
    OK(cuGraphDestroy(outer));
    printf("# with an executable of its parent: %d\n", overlaps(held, MANY));
    OK(cuGraphExecDestroy(exec));
    /* More than the rounds before left in the cache: all that is free is handed out before there is new memory. */
    printf("# with nothing: %d\n", overlaps(held, 2 * MANY));
    return 0;
}

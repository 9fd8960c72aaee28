/* Fills a cache with nearly all memory, then asks for memory in the way that the argument names. */
#include "program.h"

static const char *const EMPTY_PTX = ".version 7.0\n.target sm_52\n.address_size 64\n";

int main(int argc, char **argv) {
    enum { BLOCKS = 44 };
    CUdeviceptr blocks[BLOCKS], block = 0;
    CUcontext primary = start(), other = NULL;
    TRUE(argc == 2);
    const char *way = argv[1];
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    if (!strcmp(way, "graph")) {
        AllocNodeParams params = {.pool = {.type = 1, .location = {1, 0}}, .bytes = 512 * MIB};
        CUgraphNode node = NULL, end = NULL;
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
        OK(cuGraphAddMemFreeNode(&end, graph, &node, 1, params.pointer));
    }
    if (!strcmp(way, "context")) {
        OK(cuCtxCreate_v2(&other, 0, 0));
        OK(cuCtxSetCurrent(primary));
    }
    /* 704 of 1024 MiB. */
    size_t before = driver_free();
    for (int i = 0; i < BLOCKS; i++) blocks[i] = allocate(16 * MIB);
    for (int i = 0; i < BLOCKS; i++) OK(cuMemFree_v2(blocks[i]));

    printf("# cached %zu\n", before - driver_free());

    const size_t bytes = 512 * MIB;
    CUresult result = -1;
    if (!strcmp(way, "same")) result = cuMemAlloc_v2(&block, bytes);
    if (!strcmp(way, "context")) {
        OK(cuCtxSetCurrent(other));
        result = cuMemAlloc_v2(&block, bytes);
    }
    if (!strcmp(way, "managed")) result = cuMemAllocManaged(&block, bytes, 1);
    if (!strcmp(way, "pitched")) {
        size_t pitch = 0;
        result = cuMemAllocPitch_v2(&block, &pitch, 1 * MIB, 512, 4);
    }
    if (!strcmp(way, "array")) {
        CUarray array = NULL;
        ArrayDescriptor descriptor = {16384, 8192, 0x20, 1};
        result = cuArrayCreate_v2(&array, &descriptor);
    }
    if (!strcmp(way, "array3d")) {
        CUarray array = NULL;
        Array3DDescriptor descriptor = {1024, 1024, 128, 0x20, 1, 0};
        result = cuArray3DCreate_v2(&array, &descriptor);
    }
    if (!strcmp(way, "mipmapped")) {
        CUmipmappedArray array = NULL;
        Array3DDescriptor descriptor = {8192, 8192, 0, 0x20, 1, 0};
        result = cuMipmappedArrayCreate(&array, &descriptor, 4);
    }
    if (!strcmp(way, "vmm")) {
        AllocationProp prop = {.type = 1, .location = {1, 0}};
        CUhandle handle = 0;
        result = cuMemCreate(&handle, bytes, &prop, 0);
    }
    if (!strcmp(way, "async")) result = cuMemAllocAsync(&block, bytes, side_stream());
    if (!strcmp(way, "pool")) {
        CUmemoryPool pool = NULL;
        PoolProps props = {.type = 1, .location = {1, 0}};
        OK(cuMemPoolCreate(&pool, &props));
        result = cuMemAllocFromPoolAsync(&block, bytes, pool, side_stream());
    }
    if (!strcmp(way, "module")) {
        /* The stand-in takes memory for a module; so does the real driver. */
        void *module = NULL;
        for (int i = 0; i < 64 && (i == 0 || result == SUCCESS); i++) result = cuModuleLoadData(&module, EMPTY_PTX);
    }
    if (!strcmp(way, "graph")) {
        printf("instantiate: %d\n", cuGraphInstantiateWithFlags(&exec, graph, 0));
        result = cuGraphLaunch(exec, side_stream());
    }
    if (!strcmp(way, "stream")) {
        CUstream stream = NULL;
        for (int i = 0; i < 64 && (i == 0 || result == SUCCESS); i++) result = cuStreamCreate(&stream, 1);
    }
    if (!strcmp(way, "new-context")) result = cuCtxCreate_v2(&other, 0, 0);
    OK(cuCtxSynchronize());
    printf("%s: %d\n", way, result);
    return 0;
}

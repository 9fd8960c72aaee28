/* Stream-ordered memory and captures: on the capturing stream an allocation becomes a graph's, elsewhere it is as ever or
   forbidden, and memory from outside is not a graph's to free. Arguments: the capture's mode (0 global, 1 thread-local,
   2 relaxed); `plain` for memory of cuMemAlloc alone. */
#include "streams.h"

static CUcontext context;

static int status_of(CUstream stream) {
    int status = -1;
    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

/* The kinds of a graph's nodes: 2 a memset, 10 an allocation, 11 a free. */
static void tell(CUgraph graph) {
    CUgraphNode node[64];
    size_t count = 64;
    OK(cuGraphGetNodes(graph, node, &count));
    printf("nodes:");
    for (size_t i = 0; i < count; i++) {
        int kind = -1;
        OK(cuGraphNodeGetType(node[i], &kind));
        printf(" %d", kind);
    }
    printf("\n");
}

/* A graph that allocates, writes and frees, and leaves one block; launched beside other allocations. */
static void on_the_stream(int mode) {
    CUstream side = side_stream(), other = side_stream();
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr outside = 0, within = 0, left = 0;
    CUmemoryPool pool = new_pool(0, 0);
    OK(cuMemAllocAsync(&outside, 3 * MIB, side));
    OK(cuStreamSynchronize(side));
    OK(cuStreamBeginCapture_v2(side, mode));
    SAY("allocate", cuMemAllocAsync(&within, 3 * MIB, side));
    OK(cuMemsetD8Async(within, 1, 3 * MIB, side));
    SAY("allocate from a pool", cuMemAllocFromPoolAsync(&left, 5 * MIB, pool, side));
    OK(cuMemsetD8Async(left + 5 * MIB - 1, 7, 1, side));
    SAY("free of memory from outside", cuMemFreeAsync(outside, side));
    SAY("free of nothing", cuMemFreeAsync(0, side));
    SAY("free of what was never", cuMemFreeAsync(4096, side));
    SAY("status", status_of(side));
    OK(cuMemsetD8Async(outside, 9, 3 * MIB, side));
    SAY("free", cuMemFreeAsync(within, side));
    SAY("end", cuStreamEndCapture(side, &graph));
    tell(graph);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    printf("used of the pool: %llu, of the default pool: %llu\n", attribute(pool, USED_NOW), attribute(default_pool(0), USED_NOW));
    for (int i = 0; i < 10; i++) {
        CUdeviceptr block = 0;
        unsigned char byte[2] = {0};
        OK(cuMemsetD8Async(outside, (unsigned char)i, 3 * MIB, side));
        OK(cuGraphLaunch(exec, side));
        OK(cuMemAllocAsync(&block, 3 * MIB, other));
        OK(touch(other, block, 3 * MIB, 1, 100000));
        OK(cuMemFreeAsync(block, other));
        OK(cuMemcpyDtoHAsync_v2(&byte[0], outside + 3 * MIB - 1, 1, side));
        OK(cuMemcpyDtoHAsync_v2(&byte[1], left + 5 * MIB - 1, 1, side));
        OK(cuMemFreeAsync(left, side));
        OK(cuStreamSynchronize(side));
        TRUE(byte[0] == 9 && byte[1] == 7);
    }
    OK(cuGraphExecDestroy(exec));
    SAY("free of memory from outside, at last", cuMemFreeAsync(outside, side));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
}

typedef CUresult Call(CUstream other, CUdeviceptr block);
static CUresult allocates(CUstream other, CUdeviceptr block) {
    CUdeviceptr made = 0;
    (void)block;
    CUresult result = cuMemAllocAsync(&made, 3 * MIB, other);
    if (result == SUCCESS) {
        OK(touch(other, made, 3 * MIB, 1, 100000));
        OK(cuMemFreeAsync(made, other));
    }
    return result;
}
static CUresult allocates_by_thread(CUstream other, CUdeviceptr block) {
    CUdeviceptr made = 0;
    (void)block, (void)other;
    CUresult result = cuMemAllocAsync_ptsz(&made, 3 * MIB, NULL);
    if (result == SUCCESS) OK(cuMemFreeAsync_ptsz(made, NULL));
    return result;
}
static CUresult allocates_on_legacy(CUstream other, CUdeviceptr block) {
    CUdeviceptr made = 0;
    (void)block, (void)other;
    CUresult result = cuMemAllocAsync(&made, 3 * MIB, NULL);
    if (result == SUCCESS) OK(cuMemFreeAsync(made, NULL));
    return result;
}
static CUresult frees(CUstream other, CUdeviceptr block) { return cuMemFreeAsync(block, other); }
static CUresult frees_by_cuMemFree(CUstream other, CUdeviceptr block) { return (void)other, cuMemFree_v2(block); }
static CUresult frees_nothing(CUstream other, CUdeviceptr block) { return (void)block, cuMemFreeAsync(0, other); }
static CUresult trims(CUstream other, CUdeviceptr block) { return (void)block, (void)other, cuMemPoolTrimTo(default_pool(0), 0); }
static CUresult asks(CUstream other, CUdeviceptr block) {
    unsigned long long value = 0;
    return (void)block, (void)other, cuMemPoolGetAttribute(default_pool(0), USED_NOW, &value);
}
static CUresult sets(CUstream other, CUdeviceptr block) {
    unsigned long long value = 0;
    return (void)block, (void)other, cuMemPoolSetAttribute(default_pool(0), RELEASE_THRESHOLD, &value);
}
static CUresult creates(CUstream other, CUdeviceptr block) {
    PoolProps props = {.type = 1, .location = {1, 0}};
    CUmemoryPool pool = NULL;
    (void)block, (void)other;
    CUresult result = cuMemPoolCreate(&pool, &props);
    return result == SUCCESS ? cuMemPoolDestroy(pool) : result;
}

static struct { Call *call; CUstream other; CUdeviceptr block; CUresult result; } asked;
static void *on_a_thread(void *unused) {
    OK(cuCtxSetCurrent(context));
    asked.result = asked.call(asked.other, asked.block);
    return unused;
}

/* Each call while another stream captures, by the capturing thread or by another one: notes of its result, the status
   of the capture and how it ends, and the bytes in use after all. A driver forbids some, and the capture is broken;
   an allocator that makes no call of the driver need not. */
static void elsewhere(int mode) {
    static const struct { const char *name; Call *call; } calls[] = {
        {"allocate", allocates}, {"allocate_by_thread", allocates_by_thread}, {"allocate_on_legacy", allocates_on_legacy},
        {"free", frees}, {"free_by_cuMemFree", frees_by_cuMemFree}, {"free_of_nothing", frees_nothing}, {"trim", trims}, {"ask", asks},
        {"set", sets}, {"create", creates}};
    CUstream side = side_stream(), other = side_stream();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int by_another = 0; by_another < 2; by_another++) {
            CUgraph graph = NULL;
            CUdeviceptr block = 0, warm = 0;
            unsigned long long used = 0;
            int status = 0;
            OK(cuMemAllocAsync(&block, 3 * MIB, other));
            OK(cuMemAllocAsync(&warm, 3 * MIB, other));
            OK(cuMemFreeAsync(warm, other));
            OK(cuStreamSynchronize(other));
            OK(cuStreamBeginCapture_v2(side, mode));
            asked.call = calls[i].call, asked.other = other, asked.block = block;
            if (by_another) {
                pthread_t thread;
                OK(pthread_create(&thread, NULL, on_a_thread, NULL));
                OK(pthread_join(thread, NULL));
            } else {
                asked.result = calls[i].call(other, block);
            }
            status = status_of(side);
            CUresult end = cuStreamEndCapture(side, &graph);
            if (graph) OK(cuGraphDestroy(graph));
            OK(cuCtxSynchronize());
            used = attribute(default_pool(0), USED_NOW);
            printf("# call %s %s %d %d %d %llu\n", calls[i].name, by_another ? "another" : "own", asked.result, status, end, used);
            if (used) OK(cuMemFreeAsync(block, other));
            OK(cuStreamSynchronize(other));
        }
}

/* Nor is memory of cuMemAlloc. */
static void plain(int mode) {
    CUstream side = side_stream();
    CUgraph graph = NULL;
    CUdeviceptr block = allocate(4096);
    OK(cuStreamBeginCapture_v2(side, mode));
    SAY("free of memory of cuMemAlloc", cuMemFreeAsync(block, side));
    SAY("end", cuStreamEndCapture(side, &graph));
    SAY("free by cuMemFree", cuMemFree_v2(block));
}

int main(int argc, char **argv) {
    TRUE(argc >= 2);
    int mode = atoi(argv[1]);
    context = start_streams();
    if (argc > 2) {
        plain(mode);
        return 0;
    }
    on_the_stream(mode);
    elsewhere(mode);
    return 0;
}

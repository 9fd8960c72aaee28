/* The driver fails where the program does not see it: in what is asked about a stream before a free, and in leaving a
   context that was entered for a release, or in the question which context is current where a capture of a thread's
   default stream begins or ends. Argument: `free` (with what the free may give), `context`, `begin` or `end`. */
#include "streams.h"

static void (*mark)(void);

/* A free of the first block of a segment, on a stream of which the driver says nothing. */
static void free_of_a_part(int expected) {
    CUstream a = side_stream(), b = side_stream();
    CUdeviceptr first = 0, second = 0, other = 0;
    unsigned value = 0;
    OK(cuMemAllocAsync(&first, MIB, a));
    OK(cuMemAllocAsync(&second, MIB, a));
    OK(cuMemsetD32Async(second, 7, MIB / 4, a));
    /* What the thread remembers is the other stream. */
    OK(cuMemAllocAsync(&other, MIB, b));
    mark();
    CUresult result = cuMemFreeAsync(first, a);
    printf("free: %s\n", result == expected ? "as expected" : "another code");
    if (result) OK(cuMemFreeAsync(first, a));
    OK(cuMemcpyDtoHAsync_v2(&value, second + MIB - 4, 4, a));
    OK(cuStreamSynchronize(a));
    printf("contents: %u\n", value);
    OK(cuMemFreeAsync(second, a));
    OK(cuMemFreeAsync(other, b));
}

/* Memory that is cached in another context goes back: that context is entered and left. */
static void another_context(CUcontext primary) {
    CUcontext other = NULL, current = NULL;
    size_t most = 0, total = 0;
    CUdeviceptr block = 0;
    OK(cuCtxCreate_v2(&other, 0, 0));
    block = allocate(300 * MIB);
    OK(cuMemFree_v2(block));
    OK(cuCtxSetCurrent(primary));
    OK(cuMemGetInfo_v2(&most, &total));
    mark();
    block = allocate(most - 64 * MIB);
    OK(cuCtxGetCurrent(&current));
    printf("in its own context: %d\n", current == primary);
    OK(cuMemFree_v2(block));
    OK(cuCtxDestroy_v2(other));
    OK(cuCtxGetCurrent(&current));
    printf("still in its own context: %d\n", current == primary);
    block = allocate(MIB);
    OK(cuMemFree_v2(block));
}

/* A capture after which blocks are freed: what they held goes back to the driver once it is over. */
static void capture(CUcontext primary, int at_begin) {
    CUgraph graph = NULL;
    size_t (*stats)(uint64_t *, size_t) = NULL;
    uint64_t own[5] = {0};
    *(void **)&stats = dlsym(RTLD_DEFAULT, "gpushim_stats");
    CUdeviceptr block = allocate(300 * MIB);
    /* The thread has to ask which context is current. */
    OK(cuCtxSetCurrent(primary));
    if (at_begin) mark();
    OK(cuStreamBeginCapture_v2(PER_THREAD, 2));
    OK(cuCtxSetCurrent(primary));
    if (!at_begin) mark();
    OK(cuStreamEndCapture(PER_THREAD, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(block));
    OK(cuCtxSynchronize());
    if (stats) stats(own, 5);
    printf("waits for a capture: %llu\n", (unsigned long long)own[4]);
}

int main(int argc, char **argv) {
    CUcontext primary = start_streams();
    *(void **)&mark = dlsym(driver, "standin_mark");
    uint64_t (*hits)(int) = (uint64_t (*)(int))dlsym(driver, "standin_hits");
    TRUE(argc > 1);
    if (!strcmp(argv[1], "free")) free_of_a_part(atoi(argv[2]));
    else if (!strcmp(argv[1], "context")) another_context(primary);
    else capture(primary, !strcmp(argv[1], "begin"));
    printf("# hits %llu\n", (unsigned long long)hits(1));
    return 0;
}

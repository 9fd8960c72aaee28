/* A library author's use of include/gpushim.h. Arguments: libgpushim.so by its path, or - if it is there already; then
   the part. Notes say which allocations are to be in the trace, with their streams. */
#include "streams.h"
#include "../../include/gpushim.h"

static gpushim_malloc_fn *take;
static gpushim_free_fn *give;

static void find(const char *library) {
    void *handle = strcmp(library, "-") ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
    if (!handle && strcmp(library, "-")) printf("%s\n", dlerror());
    *(void **)&take = dlsym(handle, "gpushim_malloc");
    *(void **)&give = dlsym(handle, "gpushim_free");
    TRUE(take && give);
}

static CUdeviceptr taken(size_t bytes, int device, CUstream stream) {
    void *block = take((ssize_t)bytes, device, stream);
    TRUE(block);
    printf("# block %d %zu %llu\n", device, bytes, (unsigned long long)(uintptr_t)stream);
    return (CUdeviceptr)block;
}

static void given(CUdeviceptr block, size_t bytes, int device, CUstream stream) {
    give((void *)block, (ssize_t)bytes, device, stream);
}

static int current_device(void) {
    CUcontext context = NULL;
    int device = -1;
    OK(cuCtxGetCurrent(&context));
    if (context) OK(cuCtxGetDevice(&device));
    return device;
}

static int device_of(CUdeviceptr block) {
    int device = -1;
    OK(cuPointerGetAttribute(&device, 9, block));
    return device;
}

/* Blocks go from stream to stream, with work in flight; what one stream's work wrote another's reads in order. */
static void streams(void) {
    enum { ROUNDS = 60 };
    static unsigned char bytes[ROUNDS];
    CUstream stream[3] = {side_stream(), side_stream(), NULL};
    CUevent event = NULL;
    OK(cuEventCreate(&event, 2));
    OK(cuMemPoolSetAttribute(default_pool(0), RELEASE_THRESHOLD, (void *)&keep_all));
    for (int i = 0; i < ROUNDS; i++) {
        CUstream at = stream[i % 3], from = stream[i / 3 % 3];
        size_t size = i % 2 ? 300000 : 3 * MIB + 1;
        CUdeviceptr block = taken(size, 0, at);
        OK(touch(at, block, size, 1, 200000));
        OK(cuMemsetD8Async(block + size - 1, (unsigned char)(i + 1), 1, at));
        OK(cuEventRecord(event, at));
        OK(cuStreamWaitEvent(from, event, 0));
        /* The host waits for this copy. */
        OK(cuMemcpyDtoHAsync_v2(&bytes[i], block + size - 1, 1, from));
        OK(touch(from, block, size, 0, 200000));
        /* Freed under work that still runs. */
        given(block, size, 0, from);
        if (i % 10 == 9) OK(cuStreamSynchronize(from));
    }
    OK(cuCtxSynchronize());
    for (int i = 0; i < ROUNDS; i++) TRUE(bytes[i] == i + 1);
    OK(cuMemPoolTrimTo(default_pool(0), 0));
    printf("used %llu, reserved %llu\n", attribute(default_pool(0), USED_NOW), attribute(default_pool(0), RESERVED_NOW));
}

static void active(const char *when) {
    unsigned flags = 0;
    int is = -1;
    OK(cuDevicePrimaryCtxGetState(1, &flags, &is));
    printf("%s: the second device's primary context is %s\n", when, is ? "active" : "not active");
}

static void *without_context(void *block) {
    CUdeviceptr mine = taken(5000, 1, NULL);
    printf("without a context: on %d, then current %d\n", device_of(mine), current_device());
    given(mine, 5000, 1, NULL);
    given((CUdeviceptr)block, 70000, 1, NULL);
    return NULL;
}

/* The argument says which device, whatever is current. */
static void devices(void) {
    pthread_t thread;
    active("before");
    CUdeviceptr far = taken(70000, 1, NULL), near = taken(80000, 0, NULL);
    active("after");
    printf("on %d and %d, current %d\n", device_of(far), device_of(near), current_device());
    CUcontext second = NULL;
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent_v2(second));
    CUstream side = side_stream();
    OK(touch(NULL, far, 70000, 1, 100000));
    given(near, 80000, 0, NULL);
    printf("current %d\n", current_device());
    OK(cuCtxPopCurrent_v2(&second));
    CUdeviceptr mine = taken(3 * MIB, 1, side);
    printf("on %d, current %d\n", device_of(mine), current_device());
    OK(touch(side, mine, 3 * MIB, 1, 100000));
    given(mine, 3 * MIB, 1, side);
    OK(pthread_create(&thread, NULL, without_context, (void *)far));
    OK(pthread_join(thread, NULL));
    /* A context of the program's own on the device serves as well as the primary one. */
    CUcontext own = NULL, now = NULL;
    OK(cuCtxCreate_v2(&own, 0, 1));
    mine = taken(6000, 1, NULL);
    OK(touch(NULL, mine, 6000, 1, 100000));
    OK(cuCtxGetCurrent(&now));
    printf("on %d, in a context of our own: %d\n", device_of(mine), now == own);
    given(mine, 6000, 1, NULL);
    OK(cuCtxSynchronize());
    OK(cuCtxDestroy_v2(own));
}

static void edges(void) {
    printf("nothing: %d, less: %d\n", take(0, 0, NULL) != NULL, take(-5, 0, NULL) != NULL);
    give(NULL, 7, 0, NULL);
    printf("too much: %d\n", take((ssize_t)1 << 50, 0, NULL) != NULL);
    CUdeviceptr block = taken(1, 0, LEGACY);
    given(block, 1, 0, LEGACY);
    block = taken(9000, 0, PER_THREAD);
    given(block, 9000, 0, PER_THREAD);
    OK(cuCtxSynchronize());
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
}

/* A block of a capture is the graph's. */
static void capture(void) {
    CUstream side = side_stream();
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node[8];
    size_t count = 8;
    OK(cuStreamBeginCapture_v2(side, 0));
    CUdeviceptr block = taken(5 * MIB, 0, side);
    OK(cuMemsetD8Async(block, 3, 5 * MIB, side));
    given(block, 5 * MIB, 0, side);
    OK(cuStreamEndCapture(side, &graph));
    OK(cuGraphGetNodes(graph, node, &count));
    printf("nodes:");
    for (size_t i = 0; i < count; i++) {
        int kind = -1;
        OK(cuGraphNodeGetType(node[i], &kind));
        printf(" %d", kind);
    }
    printf("\n");
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 10; i++) {
        CUdeviceptr beside = taken(5 * MIB, 0, NULL);
        OK(touch(NULL, beside, 5 * MIB, 1, 100000));
        OK(cuGraphLaunch(exec, side));
        given(beside, 5 * MIB, 0, NULL);
    }
    OK(cuCtxSynchronize());
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
}

/* Mistakes: no such device, and a free on a capturing stream of what is not the graph's. */
static void mistakes(void) {
    CUstream side = side_stream();
    CUgraph graph = NULL;
    printf("on a device that is none: %d\n", take(100, 7, NULL) != NULL);
    CUdeviceptr block = taken(6000, 0, side);
    OK(cuStreamBeginCapture_v2(side, 2));
    given(block, 6000, 0, side);
    OK(cuStreamEndCapture(side, &graph));
    OK(cuGraphDestroy(graph));
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
    given(block, 6000, 0, side);
    OK(cuStreamSynchronize(side));
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
}

int main(int argc, char **argv) {
    TRUE(argc == 3);
    /* Before there is any CUDA in the process, as frameworks do. */
    find(argv[1]);
    const char *variable = getenv("PYTORCH_ALLOC_CONF");
    printf("# takeover %s\n", variable ? variable : "none");
    start_streams();
    if (!strcmp(argv[2], "streams")) streams();
    else if (!strcmp(argv[2], "devices")) devices();
    else if (!strcmp(argv[2], "edges")) edges();
    else if (!strcmp(argv[2], "capture")) capture();
    else if (!strcmp(argv[2], "mistakes")) mistakes();
    else return 2;
    printf("done\n");
    return 0;
}

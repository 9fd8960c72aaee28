/* Libraries, communicators, code, graphs and an extension take device memory; another process is played by a block that
   nobody sees. The arguments are the libraries' files: NCCL, its user, cuBLAS, cuDNN, an extension. */
#include "program.h"

typedef struct { char internal[128]; } ncclUniqueId;

static void *open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) die(dlerror(), 0, __LINE__);
    return library;
}

static void take(const char *path, const char *function, size_t mib) {
    int (*takes)(size_t) = NULL;
    *(void **)&takes = dlsym(open_library(path), function);
    TRUE(takes != NULL);
    OK(takes(mib << 20));
}

static void wait_ms(long ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

int main(int argc, char **argv) {
    CUdeviceptr block = 0, unseen = 0;
    CUresult (*allocate)(CUdeviceptr *, size_t) = NULL;
    int (*init)(void **, int, ncclUniqueId, int) = NULL, (*world)(void **) = NULL, (*half)(void *, void **) = NULL;
    ncclUniqueId id = {{0}};
    void *communicators[3], *module = NULL, *user;
    CUstream stream;
    CUgraph graph = NULL;
    CUgraphExec execs[2];
    if (argc < 6) return 2;
    start();
    *(void **)&allocate = true_symbol(driver, "cuMemAlloc_v2");
    OK(allocate(&unseen, 64 << 20));
    OK(cuMemAlloc_v2(&block, 20 << 20));
    wait_ms(400); /* The driver's figures are asked for the first time. */

    id.internal[0] = 7;
    id.internal[127] = 9;
    *(void **)&init = dlsym(open_library(argv[1]), "ncclCommInitRank");
    OK(init(&communicators[0], 4, id, 2));
    user = open_library(argv[2]);
    *(void **)&world = dlsym(user, "world_group");
    *(void **)&half = dlsym(user, "half_group");
    OK(world(&communicators[1]));
    OK(half(communicators[1], &communicators[2]));
    TRUE(communicators[2] != communicators[0]);
    take(argv[3], "cublas_takes", 24);
    take(argv[4], "cudnn_takes", 12);
    take(argv[5], "grow", 40);
    OK(cuModuleLoadData(&module, "code"));
    stream = side_stream();
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(cuStreamEndCapture(stream, &graph));
    for (int i = 0; i < 2; i++) OK(cuGraphInstantiateWithFlags(&execs[i], graph, 0));
    OK(cuGraphExecDestroy(execs[1]));
    wait_ms(1500); /* And again. */
    printf("done\n");
    return 0;
}

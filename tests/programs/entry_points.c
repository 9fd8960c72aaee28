/* Every way to allocate, once or a known number of times. Each note `# CLASS BYTES` is an allocation that succeeded
   and was freed again; a call that the driver refuses is in the output only. */
#include "program.h"
#include <sys/mman.h>
#include <sys/wait.h>

/* Says what a call gave and notes the allocation. */
static int did(const char *name, const char *class, size_t bytes, CUresult result) {
    printf("%s: %d\n", name, result);
    if (result == SUCCESS) printf("# %s %zu\n", class, bytes);
    return result == SUCCESS;
}

static void linear(void) {
    CUdeviceptr p = 0;
    size_t pitch = 0;
    for (int i = 0; i < 3; i++)
        if (did("cuMemAlloc", "device", 1000, cuMemAlloc_v2(&p, 1000))) OK(cuMemFree_v2(p));
    if (did("cuMemAllocManaged", "managed", 3 * MIB, cuMemAllocManaged(&p, 3 * MIB, 1))) OK(cuMemFree_v2(p));
    CUresult result = cuMemAllocPitch_v2(&p, &pitch, 1000, 50, 4);
    if (did("cuMemAllocPitch", "pitched", pitch * 50, result)) OK(cuMemFree_v2(p));
}

static void arrays(void) {
    CUarray array = NULL;
    CUmipmappedArray levels = NULL;
    ArrayDescriptor flat = {256, 128, 0x20, 2};
    Array3DDescriptor deep = {64, 32, 16, 0x10, 4, 0};
    if (did("cuArrayCreate", "array", 256 * 128 * 8, cuArrayCreate_v2(&array, &flat))) OK(cuArrayDestroy(array));
    if (did("cuArray3DCreate", "array", 64 * 32 * 16 * 8, cuArray3DCreate_v2(&array, &deep))) OK(cuArrayDestroy(array));
    Array3DDescriptor top = {64, 64, 0, 0x20, 1, 0};
    if (did("cuMipmappedArrayCreate", "mipmapped-array", (4096 + 1024 + 256) * 4, cuMipmappedArrayCreate(&levels, &top, 3)))
        OK(cuMipmappedArrayDestroy(levels));
}

static void host(void) {
    void *p = NULL;
    if (did("cuMemHostAlloc", "host", 5000, cuMemHostAlloc(&p, 5000, 0))) OK(cuMemFreeHost(p));
    if (did("cuMemAllocHost", "host", 6000, cuMemAllocHost_v2(&p, 6000))) OK(cuMemFreeHost(p));
    p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (did("cuMemHostRegister", "registered", 65536, cuMemHostRegister_v2(p, 65536, 0))) OK(cuMemHostUnregister(p));
}

static void virtual_memory(void) {
    AllocationProp prop = {.type = 1, .location = {1, 0}}, on_host = {.type = 1, .location = {3, 0}};
    AccessDesc access = {{1, 0}, 3};
    CUhandle handle = 0;
    CUdeviceptr p = 0;
    if (did("cuMemCreate", "vmm", 4 * MIB, cuMemCreate(&handle, 4 * MIB, &prop, 0))) {
        OK(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
        if (did("cuMemMap", "vmm-map", 4 * MIB, cuMemMap(p, 4 * MIB, 0, handle, 0))) {
            OK(cuMemSetAccess(p, 4 * MIB, &access, 1));
            OK(cuMemsetD8_v2(p, 1, 4 * MIB));
            OK(cuCtxSynchronize());
            OK(cuMemUnmap(p, 4 * MIB));
        }
        OK(cuMemAddressFree(p, 4 * MIB));
        OK(cuMemRelease(handle));
    }
    if (did("cuMemCreate on the host", "host", 2 * MIB, cuMemCreate(&handle, 2 * MIB, &on_host, 0))) OK(cuMemRelease(handle));
}

static void stream_ordered(void) {
    CUstream side = side_stream();
    CUdeviceptr p = 0;
    CUmemoryPool pool = NULL;
    PoolProps props = {.type = 1, .location = {1, 0}};
    CUresult (*ptsz_allocate)(CUdeviceptr *, size_t, CUstream) = NULL;
    CUresult (*ptsz_free)(CUdeviceptr, CUstream) = NULL;
    *(void **)&ptsz_allocate = dlsym(driver, "cuMemAllocAsync_ptsz");
    *(void **)&ptsz_free = dlsym(driver, "cuMemFreeAsync_ptsz");
    if (did("cuMemAllocAsync", "pool-async", 7000, cuMemAllocAsync(&p, 7000, side))) OK(cuMemFreeAsync(p, side));
    if (did("cuMemAllocAsync_ptsz", "pool-async", 8000, ptsz_allocate(&p, 8000, NULL))) OK(ptsz_free(p, NULL));
    if (did("cuMemAllocAsync, cuMemFree", "pool-async", 9000, cuMemAllocAsync(&p, 9000, side))) {
        OK(cuStreamSynchronize(side));
        OK(cuMemFree_v2(p));
    }
    OK(cuMemPoolCreate(&pool, &props));
    if (did("cuMemAllocFromPoolAsync", "pool-async", 10000, cuMemAllocFromPoolAsync(&p, 10000, pool, side)))
        OK(cuMemFreeAsync(p, side));
    OK(cuStreamSynchronize(side));
    OK(cuMemPoolDestroy(pool));
}

static void graph_nodes(void) {
    CUgraph graph = NULL;
    CUgraphNode node = NULL, end = NULL;
    AllocNodeParams params = {.pool = {.type = 1, .location = {1, 0}}, .bytes = 3 * MIB};
    OK(cuGraphCreate(&graph, 0));
    if (did("cuGraphAddMemAllocNode", "graph-node", 3 * MIB, cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params)))
        OK(cuGraphAddMemFreeNode(&end, graph, &node, 1, params.pointer));
    OK(cuGraphDestroy(graph));
}

/* Another process opens our memory: this program again, with the handle on its standard input. */
static void ipc(const char *self) {
    IpcHandle handle;
    CUdeviceptr p = 0;
    int ends[2], status = 0;
    if (!did("cuMemAlloc for others", "device", 2 * MIB, cuMemAlloc_v2(&p, 2 * MIB))) return;
    CUresult result = cuIpcGetMemHandle(&handle, p);
    printf("cuIpcGetMemHandle: %d\n", result);
    if (result == SUCCESS) printf("# exported 0\n");
    OK(pipe(ends));
    TRUE(write(ends[1], &handle, sizeof handle) == sizeof handle);
    close(ends[1]);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], 0);
        execl(self, self, "import", (char *)NULL);
        _exit(9);
    }
    TRUE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(cuMemFree_v2(p));
}

static int import_only(void) {
    IpcHandle handle;
    CUdeviceptr p = 0;
    TRUE(read(0, &handle, sizeof handle) == sizeof handle);
    start();
    CUresult result = cuIpcOpenMemHandle_v2(&p, handle, 1);
    printf("cuIpcOpenMemHandle: %d\n", result);
    if (result == SUCCESS) printf("# imported 0\n# importer %d\n", (int)getpid());
    if (result == SUCCESS) OK(cuIpcCloseMemHandle(p));
    return 0;
}

static void external(void) {
    /* CUDA_EXTERNAL_MEMORY_HANDLE_DESC: type, then a union of 16 bytes, then size and flags. */
    struct { int type; int pad; union { int fd; void *p[2]; } handle; unsigned long long size; unsigned flags, reserved[16]; }
        from = {.type = 1, .size = 1 * MIB};
    CUresult (*import)(void **, const void *) = NULL, (*destroy)(void *) = NULL;
    void *memory = NULL;
    *(void **)&import = dlsym(driver, "cuImportExternalMemory");
    *(void **)&destroy = dlsym(driver, "cuDestroyExternalMemory");
    if (!import || !destroy) {
        printf("cuImportExternalMemory: absent\n");
        return;
    }
    from.handle.fd = memfd_create("external", 0);
    OK(ftruncate(from.handle.fd, 1 << 20));
    if (did("cuImportExternalMemory", "external", 1 * MIB, import(&memory, &from))) OK(destroy(memory));
}

int main(int argc, char **argv) {
    if (argc == 2) return import_only();
    start();
    printf("# process %d\n", (int)getpid());
    linear();
    arrays();
    host();
    virtual_memory();
    stream_ordered();
    graph_nodes();
    external();
    ipc(argv[0]);
    return 0;
}

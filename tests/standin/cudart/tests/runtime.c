/* What a program sees of the runtime, whichever version and linkage: exits with the line of the first check that fails.
 * Build: gcc -Wall -Wextra -O1 -DVERSION=12 runtime.c -l:libcudart.so.12 -ldl (or libcudart_static.a with VERSION=13) */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Error;
typedef void *Handle;
typedef struct { void *pointer; size_t pitch, width, height; } Pitched;
typedef struct { size_t width, height, depth; } Extent;
typedef struct { int type, device; void *device_pointer, *host_pointer; long reserved[8]; } Attributes;
typedef struct { int x, y, z, w, kind; } Channels;
typedef struct { char bytes[64]; } IpcHandle;

Error cudaRuntimeGetVersion(int *), cudaDriverGetVersion(int *), cudaGetDeviceCount(int *), cudaGetDevice(int *), cudaSetDevice(int);
Error cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocAsync(void **, size_t, Handle), cudaFreeAsync(void *, Handle);
Error cudaMallocManaged(void **, size_t, unsigned), cudaMallocHost(void **, size_t), cudaFreeHost(void *), cudaHostAlloc(void **, size_t, unsigned);
Error cudaMallocPitch(void **, size_t *, size_t, size_t), cudaMalloc3D(Pitched *, Extent);
Error cudaMallocArray(Handle *, const Channels *, size_t, size_t, unsigned), cudaFreeArray(Handle);
Error cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, Handle);
Error cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, Handle);
Error cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
Error cudaStreamCreateWithFlags(Handle *, unsigned), cudaStreamDestroy(Handle), cudaStreamSynchronize(Handle), cudaStreamQuery(Handle);
Error cudaEventCreate(Handle *), cudaEventRecord(Handle, Handle), cudaEventSynchronize(Handle), cudaEventQuery(Handle), cudaEventDestroy(Handle);
Error cudaDeviceSynchronize(void), cudaDeviceReset(void), cudaMemGetInfo(size_t *, size_t *), cudaGetLastError(void), cudaPeekAtLastError(void);
Error cudaPointerGetAttributes(Attributes *, const void *), cudaDeviceGetDefaultMemPool(Handle *, int), cudaMemPoolGetAttribute(Handle, int, void *);
Error cudaStreamBeginCapture(Handle, int), cudaStreamEndCapture(Handle, Handle *), cudaGraphLaunch(Handle, Handle), cudaGraphExecDestroy(Handle), cudaGraphDestroy(Handle);
Error cudaGetDriverEntryPoint(const char *, void **, unsigned long long, int *), cudaDeviceCanAccessPeer(int *, int, int);
Error cudaIpcGetMemHandle(IpcHandle *, void *);
#if VERSION == 12
Error cudaGetDeviceProperties_v2(void *, int);
#define PROPERTIES cudaGetDeviceProperties_v2
#define PROPERTIES_SIZE 1032
#define MULTIPROCESSORS 388
#else
Error cudaGetDeviceProperties(void *, int);
#define PROPERTIES cudaGetDeviceProperties
#define PROPERTIES_SIZE 1008
#define MULTIPROCESSORS (VERSION == 13 ? 384 : 388)
#endif
#if VERSION == 11
Error cudaGraphInstantiate(Handle *, Handle, Handle *, char *, size_t);
#define INSTANTIATE(exec, graph) cudaGraphInstantiate(exec, graph, NULL, NULL, 0)
#else
Error cudaGraphInstantiate(Handle *, Handle, unsigned long long);
#define INSTANTIATE(exec, graph) cudaGraphInstantiate(exec, graph, 0)
#endif
const char *cudaGetErrorString(Error), *cudaGetErrorName(Error);

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "runtime.c:%d: %s (last error %d)\n", __LINE__, #condition, cudaPeekAtLastError());       \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)
#define OK(call) CHECK((call) == 0)

static Handle current_context(void) {
    Handle context = NULL;
    int (*get)(Handle *) = (int (*)(Handle *))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxGetCurrent");
    CHECK(get && get(&context) == 0);
    return context;
}

static void context_laziness(void) {
    OK(cudaSetDevice(0));
    if (VERSION == 11) {
        CHECK(current_context() == NULL);
        OK(cudaFree(NULL));
    }
    CHECK(current_context() != NULL);
    CHECK(cudaSetDevice(99) == 101 && cudaGetLastError() == 101);
}

static void memory(void) {
    void *p = (void *)1, *q = NULL, *h = NULL;
    char bytes[256], back[256];
    for (int i = 0; i < 256; i++) bytes[i] = (char)i;
    OK(cudaMalloc(&p, 0));
    CHECK(p == NULL);
    OK(cudaMalloc(&p, 1000));
    OK(cudaMalloc(&q, 1000));
    OK(cudaMemcpy(p, bytes, 256, 1));
    OK(cudaMemcpy(q, p, 256, 3));
    OK(cudaMemcpy(back, q, 256, 4));
    CHECK(!memcmp(bytes, back, 256));
    OK(cudaMemset(p, 7, 100));
    OK(cudaMemcpy(back, p, 100, 2));
    CHECK(back[0] == 7 && back[99] == 7);
    CHECK(cudaMemcpy(p, bytes, 16, 9) == 21 && cudaGetLastError() == 21);
    OK(cudaFree(p));
    CHECK(cudaFree(p) == 1);
    CHECK(cudaPeekAtLastError() == 1 && cudaGetLastError() == 1 && cudaGetLastError() == 0);
    OK(cudaFree(NULL));
    CHECK(cudaMalloc(&p, (size_t)1 << 44) == 2);
    CHECK(!strcmp(cudaGetErrorString(2), "out of memory") && !strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation"));
    cudaGetLastError();
    OK(cudaMallocManaged(&p, 100, 1));
    memset(p, 3, 100);
    OK(cudaFree(p));
    OK(cudaMallocHost(&h, 100));
    OK(cudaFreeHost(h));
    OK(cudaHostAlloc(&h, 100, 4));
    OK(cudaFreeHost(h));
    size_t pitch = 0;
    OK(cudaMallocPitch(&p, &pitch, 100, 10));
    CHECK(pitch == 512);
    OK(cudaMemcpy2D(p, pitch, bytes, 16, 16, 16 / 2, 1));
    OK(cudaMemcpy2D(back, 16, p, pitch, 16, 16 / 2, 2));
    CHECK(!memcmp(bytes, back, 128));
    OK(cudaFree(p));
    Pitched volume;
    OK(cudaMalloc3D(&volume, (Extent){100, 4, 5}));
    CHECK(volume.pitch == 512 && volume.height == 4);
    OK(cudaFree(volume.pointer));
    Handle array = NULL;
    OK(cudaMallocArray(&array, &(Channels){32, 0, 0, 0, 2}, 64, 64, 0));
    OK(cudaFreeArray(array));
    Attributes attributes;
    memset(&attributes, 0x55, sizeof attributes);
    OK(cudaPointerGetAttributes(&attributes, q));
    CHECK(attributes.type == 2 && attributes.device == 0 && attributes.device_pointer == q);
    /* CUDA 13 has eight words more. */
    CHECK((attributes.reserved[7] == 0) == (VERSION == 13));
    OK(cudaPointerGetAttributes(&attributes, bytes));
    CHECK(attributes.type == 0 && attributes.host_pointer == bytes);
    IpcHandle handle;
    OK(cudaIpcGetMemHandle(&handle, q));
    OK(cudaFree(q));
    size_t available = 0, total = 0;
    OK(cudaMemGetInfo(&available, &total));
    CHECK(available > 0 && available <= total);
}

static void streams(void) {
    Handle s = NULL, e = NULL, graph = NULL, exec = NULL, pool = NULL;
    void *p = NULL;
    char back[64] = {0};
    unsigned long long used = 1;
    OK(cudaStreamCreateWithFlags(&s, 1));
    OK(cudaMallocAsync(&p, 1000, s));
    OK(cudaMemsetAsync(p, 9, 64, s));
    OK(cudaMemcpyAsync(back, p, 64, 2, s));
    OK(cudaEventCreate(&e));
    OK(cudaEventRecord(e, s));
    OK(cudaEventSynchronize(e));
    OK(cudaEventQuery(e));
    CHECK(back[63] == 9);
    OK(cudaFreeAsync(p, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaStreamQuery(s));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolGetAttribute(pool, 7, &used));
    CHECK(used == 0);
    OK(cudaMalloc(&p, 64));
    OK(cudaMemset(p, 0, 64));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamBeginCapture(s, 2));
    OK(cudaMemsetAsync(p, 5, 64, s));
    OK(cudaStreamEndCapture(s, &graph));
    OK(INSTANTIATE(&exec, graph));
    OK(cudaMemcpy(back, p, 64, 2));
    CHECK(back[0] == 0);
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(back, p, 64, 2));
    CHECK(back[0] == 5);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaFree(p));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

static void devices(void) {
    int runtime = 0, driver = 0, count = 0, device = -1, able = -1, status = -1;
    void *entry = NULL;
    OK(cudaRuntimeGetVersion(&runtime));
    CHECK(runtime / 1000 == VERSION);
    OK(cudaDriverGetVersion(&driver));
    CHECK(driver >= runtime / 1000 * 1000);
    OK(cudaGetDeviceCount(&count));
    CHECK(count == 1);
    OK(cudaGetDevice(&device));
    CHECK(device == 0);
    OK(cudaDeviceCanAccessPeer(&able, 0, 0));
    CHECK(able == 0);
    unsigned char properties[PROPERTIES_SIZE + 16];
    memset(properties, 0xee, sizeof properties);
    OK(PROPERTIES(properties, 0));
    size_t memory = 0;
    int multiprocessors = 0;
    memcpy(&memory, properties + 288, sizeof memory);
    memcpy(&multiprocessors, properties + MULTIPROCESSORS, sizeof multiprocessors);
    CHECK(memory == (size_t)8 << 30 && multiprocessors == 132);
    CHECK(properties[PROPERTIES_SIZE] == 0xee);
    if (VERSION > 11) CHECK(properties[PROPERTIES_SIZE - 1] == 0);
    OK(cudaGetDriverEntryPoint("cuMemAlloc", &entry, 0, &status));
    CHECK(entry == dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2") && status == 0);
    OK(cudaGetDriverEntryPoint("cuNoSuchThing", &entry, 0, &status));
    CHECK(status == 1);
}

static void reset(void) {
    void *p = NULL;
    OK(cudaMalloc(&p, 1000));
    OK(cudaDeviceReset());
    OK(cudaMalloc(&p, 1000));
    OK(cudaDeviceSynchronize());
    OK(cudaFree(p));
}

int main(void) {
    context_laziness();
    devices();
    memory();
    streams();
    reset();
    puts("ok");
    return 0;
}

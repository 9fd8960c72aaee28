/* Beyond program.h, for stream-ordered memory: the entry points of the per-thread default stream, whole-range work that
   also runs on a real driver, and a pseudo-random sequence. */
#ifndef STREAMS_H
#define STREAMS_H
#include "program.h"

enum { INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
enum { RELEASE_THRESHOLD = 4, RESERVED_NOW, RESERVED_HIGH, USED_NOW, USED_HIGH };
static const unsigned long long keep_all __attribute__((unused)) = ~0ull;

/* One call and what it gave, on a line of its own: the order of several in one line would be the compiler's. */
#define SAY(what, call) printf("%s: %d\n", what, (int)(call))

#define STREAM_FUNCTIONS(F) \
    F(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream)) F(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream)) \
    F(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *, size_t, CUmemoryPool, CUstream)) \
    F(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))
#define DEFINE(name, args) static CUresult(*name) args __attribute__((unused));
STREAM_FUNCTIONS(DEFINE)
#undef DEFINE

/* start(), and the functions above through the same door. */
static inline CUcontext start_streams(void) {
    CUcontext context = start();
    const char *door = getenv("DOOR");
    ProcAddress *get = NULL;
    if (door && !strcmp(door, "proc")) *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    void *where = door && !strcmp(door, "default") ? RTLD_DEFAULT : driver;
#define FIND(name, args)                                                                             \
    {                                                                                                \
        char plain[] = #name;                                                                        \
        char *suffix = strstr(plain, "_ptsz");                                                       \
        void *found = NULL;                                                                          \
        if (suffix) *suffix = 0;                                                                     \
        if (!get || get(plain, &found, 12000, suffix ? 2 : 0, NULL)) found = dlsym(where, #name);     \
        *(void **)&name = found ? found : (void *)missing_function;                                  \
    }
    STREAM_FUNCTIONS(FIND)
#undef FIND
    return context;
}

/* A kernel of this duration that writes or reads all of a block; a real driver is given a memset instead. */
static inline CUresult touch(CUstream stream, CUdeviceptr block, size_t bytes, int writes, uint64_t ns) {
    CUresult result = work(stream, block, bytes, writes, ns);
    if (result != MISSING) return result;
    return writes ? cuMemsetD8Async(block, 0, bytes, stream) : SUCCESS;
}

static inline unsigned long long attribute(CUmemoryPool pool, int which) {
    unsigned long long value = 0;
    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static inline CUmemoryPool default_pool(CUdevice device) {
    CUmemoryPool pool = NULL;
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    return pool;
}

static inline CUmemoryPool new_pool(CUdevice device, size_t max_size) {
    PoolProps props = {.type = 1, .location = {1, device}, .max_size = max_size};
    CUmemoryPool pool = NULL;
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

/* xorshift: the next number of a sequence, whose state is never 0. */
static inline uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
#endif

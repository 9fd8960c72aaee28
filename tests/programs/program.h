/* What the test programs share: the driver's functions through the door that DOOR names, checks, work on streams.
   Types and signatures are the conformance program's. Lines of output that begin with `# ` are notes for the test
   and are not compared between a run with the shim and a run without. */
#ifndef PROGRAM_H
#define PROGRAM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../conformance/conformance.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef CUresult ProcAddress(const char *, void **, int, uint64_t, int *);
typedef struct { uint64_t address, bytes; uint32_t writes; } Touched;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };

#define MORE_FUNCTIONS(F) \
    F(cuModuleLoadData, (void **, const void *)) F(cuModuleUnload, (void *)) \
    F(standin_launch, (CUstream, uint64_t, size_t, const Touched *))

void *driver;
#define DEFINE(name, args) CUresult(*name) args;
FUNCTIONS(DEFINE)
#undef DEFINE
#define DEFINE(name, args) static CUresult(*name) args __attribute__((unused));
MORE_FUNCTIONS(DEFINE)
#undef DEFINE

static CUresult missing_function(void) { return MISSING; }

static void die(const char *what, int result, int line) {
    printf("line %d: %s gave %d\n", line, what, result);
    fflush(stdout);
    _exit(3);
}

/* Ends the program unless the call succeeds. */
#define OK(call)                                       \
    do {                                               \
        int ok_ = (call);                              \
        if (ok_ != 0) die(#call, ok_, __LINE__);       \
    } while (0)
/* Ends the program unless the condition holds. */
#define TRUE(condition)                                \
    do {                                               \
        if (!(condition)) die(#condition, 0, __LINE__); \
    } while (0)

/* Names without their version, for cuGetProcAddress; those whose plain name means another variant stay with dlsym. */
static void *by_proc_address(ProcAddress *get, const char *name) {
    static const char *const kept[] = {"cuCtxCreate_v2", "cuCtxGetDevice_v2", "cuCtxSynchronize_v2", "cuEventElapsedTime_v2"};
    char plain[80];
    void *found = NULL;
    size_t length = strlen(name);
    if (length >= sizeof plain) return NULL;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (!strcmp(name, kept[i])) return NULL;
    strcpy(plain, name);
    if (length > 3 && !strcmp(plain + length - 3, "_v2")) plain[length - 3] = 0;
    return get(plain, &found, 12000, 0, NULL) == SUCCESS ? found : NULL;
}

/* DOOR: `handle` (dlsym with the driver's handle; default), `proc` (cuGetProcAddress), `default` (RTLD_DEFAULT). */
static void open_driver(void) {
    const char *door = getenv("DOOR");
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver) {
        printf("no driver: %s\n", dlerror());
        exit(3);
    }
    ProcAddress *get = NULL;
    if (door && !strcmp(door, "proc")) *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    void *where = door && !strcmp(door, "default") ? RTLD_DEFAULT : driver;
    void *found;
#define FIND(name, args)                                       \
    found = get ? by_proc_address(get, #name) : NULL;          \
    if (!found) found = dlsym(where, #name);                   \
    *(void **)&name = found ? found : (void *)missing_function;
    FUNCTIONS(FIND)
    MORE_FUNCTIONS(FIND)
#undef FIND
}

/* The driver, the primary context of device 0 retained and current. */
CUcontext start(void) {
    CUcontext context = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_driver();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

/* A non-blocking stream. */
CUstream side_stream(void) {
    CUstream stream = NULL;
    OK(cuStreamCreate(&stream, 1));
    return stream;
}

/* Free bytes of the current device. */
size_t free_memory(void) {
    size_t available = 0, total = 0;
    OK(cuMemGetInfo_v2(&available, &total));
    return available;
}

/* glibc's own dlsym, which answers with the driver's functions whatever is preloaded. */
static inline void *true_symbol(void *library, const char *name) {
    void *(*look)(void *, const char *) = NULL;
    *(void **)&look = dlvsym(dlopen("libc.so.6", RTLD_NOW), "dlsym", "GLIBC_2.2.5");
    return look ? look(library, name) : NULL;
}

/* Free bytes of the current device as the driver itself counts them. */
static inline size_t driver_free(void) {
    size_t available = 0, total = 0;
    CUresult (*info)(size_t *, size_t *) = NULL;
    *(void **)&info = true_symbol(driver, "cuMemGetInfo_v2");
    OK(info(&available, &total));
    return available;
}

/* A kernel of this duration on a stream that writes, or only reads, all of a block. */
static inline CUresult work(CUstream stream, CUdeviceptr block, size_t bytes, int writes, uint64_t ns) {
    Touched touched = {block, bytes, (uint32_t)writes};
    return standin_launch(stream, ns, 1, &touched);
}

static inline CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr block = 0;
    OK(cuMemAlloc_v2(&block, bytes));
    return block;
}

static inline void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* The name of the exported symbol at an address, or `?`. */
static inline const char *symbol_at(void *address) {
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_sname ? info.dli_sname : "?";
}

/* The file name of the library that contains an address. */
static inline const char *library_of(void *address) {
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_fname) return "?";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}
#endif

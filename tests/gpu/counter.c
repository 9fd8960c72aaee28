/* What a program asks of the driver, counted without the shim: an independent witness.
 *
 * A preloaded library that answers `dlsym` for the driver's allocation calls and for
 * cuGetProcAddress, forwards everything, and counts in a shared file (GPUCHECK_COUNTS), so the
 * counts outlive any death of the process. It serves the fixed set of programs in tests/gpu; it is
 * no general interposer (RTLD_NEXT callers are forwarded by a sibling call and keep their meaning
 * only because the compiler makes it one: build with -O2).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The calls counted. All their arguments are integers or pointers, and never more than six: so six
 * register arguments carry every signature. */
#define CALLS(X)                                                                                   \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemFree_v2)                                                                                \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemAllocPitch_v2)                                                                          \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemAllocHost_v2)                                                                           \
    X(cuMemFreeHost)                                                                               \
    X(cuMemAllocAsync)                                                                             \
    X(cuMemAllocAsync_ptsz)                                                                        \
    X(cuMemAllocFromPoolAsync)                                                                     \
    X(cuMemAllocFromPoolAsync_ptsz)                                                                \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemFreeAsync_ptsz)                                                                         \
    X(cuMemCreate)                                                                                 \
    X(cuMemRelease)                                                                                \
    X(cuArrayCreate_v2)                                                                            \
    X(cuArray3DCreate_v2)

typedef uint64_t word;
typedef int (*call6)(word, word, word, word, word, word);

enum {
#define INDEX(name) at_##name,
    CALLS(INDEX) COUNT
};

static const char *const names[COUNT] = {
#define NAME(name) #name,
    CALLS(NAME)};
static call6 real[COUNT];

/* One call's line in the file: its name, how often it succeeded and failed. */
struct slot {
    char name[32];
    uint64_t succeeded, failed;
};
static struct slot *slots;

static int counted(int index, word a, word b, word c, word d, word e, word f)
{
    int code = real[index](a, b, c, d, e, f);
    /* Freeing NULL succeeds and frees nothing: not an event of memory. */
    int nothing = index == at_cuMemFree_v2 && a == 0;
    if (slots && !nothing)
        __atomic_fetch_add(code == 0 ? &slots[index].succeeded : &slots[index].failed, 1, __ATOMIC_RELAXED);
    return code;
}

#define WRAP(name)                                                                                 \
    static int counting_##name(word a, word b, word c, word d, word e, word f)                     \
    {                                                                                              \
        return counted(at_##name, a, b, c, d, e, f);                                               \
    }
CALLS(WRAP)
static const call6 wrappers[COUNT] = {
#define WRAPPER(name) counting_##name,
    CALLS(WRAPPER)};

typedef void *(*dlsym_fn)(void *, const char *);
static dlsym_fn real_dlsym;

__attribute__((constructor)) static void start(void)
{
    real_dlsym = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real_dlsym)
        real_dlsym = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    const char *path = getenv("GPUCHECK_COUNTS");
    if (!path || slots)
        return;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0)
        return;
    size_t bytes = sizeof(struct slot) * COUNT;
    if (ftruncate(file, bytes) == 0) {
        void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (map != MAP_FAILED) {
            slots = map;
            for (int i = 0; i < COUNT; i++)
                strncpy(slots[i].name, names[i], sizeof slots[i].name - 1);
        }
    }
    close(file);
}

/* The driver's export of this address, if it is one that we count. */
static void *substitute(void *address)
{
    static void *library;
    if (!address)
        return address;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    for (int i = 0; library && i < COUNT; i++) {
        if (!real[i])
            real[i] = (call6)real_dlsym(library, names[i]);
        if ((void *)real[i] == address)
            return (void *)wrappers[i];
    }
    return address;
}

static int (*real_address_v2)(const char *, void **, int, word, void *);
static int (*real_address_v1)(const char *, void **, int, word);

static int address_v2(const char *name, void **out, int version, word flags, void *status)
{
    int code = real_address_v2(name, out, version, flags, status);
    if (code != 0 || !out || !*out)
        return code;
    if (strcmp(name, "cuGetProcAddress") == 0) {
        /* Asked for through itself: from 12.0 on the answer takes five arguments. */
        if (version >= 12000) {
            real_address_v2 = (int (*)(const char *, void **, int, word, void *))*out;
            *out = (void *)address_v2;
        }
        return code;
    }
    *out = substitute(*out);
    return code;
}

static int address_v1(const char *name, void **out, int version, word flags)
{
    int code = real_address_v1(name, out, version, flags);
    if (code == 0 && out)
        *out = substitute(*out);
    return code;
}

__attribute__((visibility("default"), optimize("O2"))) void *dlsym(void *handle, const char *name)
{
    if (!real_dlsym)
        start();
    if (handle == RTLD_NEXT || name[0] != 'c' || name[1] != 'u')
        return real_dlsym(handle, name);
    if (strcmp(name, "cuGetProcAddress_v2") == 0) {
        void *found = real_dlsym(handle, name);
        if (!found)
            return NULL;
        real_address_v2 = (int (*)(const char *, void **, int, word, void *))found;
        return (void *)address_v2;
    }
    if (strcmp(name, "cuGetProcAddress") == 0) {
        void *found = real_dlsym(handle, name);
        if (!found)
            return NULL;
        real_address_v1 = (int (*)(const char *, void **, int, word))found;
        return (void *)address_v1;
    }
    for (int i = 0; i < COUNT; i++)
        if (strcmp(name, names[i]) == 0)
            return substitute(real_dlsym(handle, name));
    return real_dlsym(handle, name);
}

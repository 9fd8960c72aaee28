/* All calls of the driver in a process, by name, as the driver itself reports them.
 *
 * An injection library (CUDA_INJECTION64_PATH): the driver loads it in cuInit. It subscribes to the
 * driver's calls by CUPTI (DRIVER_CALLS_CUPTI: path of libcupti), and counts them in a shared file,
 * DRIVER_CALLS-PID, so that the counts outlive any death of the process. Nothing of gpushim is
 * asked. The types are those of cupti_callbacks.h, as far as they are used.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DRIVER_API = 1, EXIT = 1, CALLS = 2048 };

struct called {
    int site;
    const char *function;
    const void *parameters;
    const int *result;
};

/* A function's line in the file, at its number in CUPTI. */
struct slot {
    char name[48];
    _Atomic uint64_t count, failed;
    /* Sum of a mixed value of each size: equal for equal sizes in any order. */
    _Atomic uint64_t sizes;
};
static struct slot *slots;

/* Functions whose second argument is a number of bytes. */
static const char *const sized[] = {
    "cuMemAlloc_v2", "cuMemAllocManaged", "cuMemHostAlloc", "cuMemAllocHost_v2", "cuMemCreate",
    "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz",
};

static uint64_t mixed(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

static void on_call(void *data, int domain, uint32_t number, const struct called *call)
{
    (void)data;
    if (domain != DRIVER_API || call->site != EXIT || number >= CALLS)
        return;
    struct slot *slot = &slots[number];
    if (atomic_fetch_add(&slot->count, 1) == 0)
        strncpy(slot->name, call->function, sizeof slot->name - 1);
    if (call->result && *call->result)
        atomic_fetch_add(&slot->failed, 1);
    for (size_t i = 0; i < sizeof sized / sizeof *sized; i++)
        if (!strcmp(call->function, sized[i]))
            atomic_fetch_add(&slot->sizes, mixed(((const uint64_t *)call->parameters)[1]));
}

int InitializeInjection(void)
{
    const char *cupti = getenv("DRIVER_CALLS_CUPTI"), *prefix = getenv("DRIVER_CALLS");
    if (!cupti || !prefix)
        return 1;
    char path[4096];
    snprintf(path, sizeof path, "%s-%d", prefix, getpid());
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, CALLS * sizeof(struct slot)))
        return 1;
    slots = mmap(NULL, CALLS * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    void *library = dlopen(cupti, RTLD_NOW | RTLD_LOCAL);
    if (slots == MAP_FAILED || !library) {
        fprintf(stderr, "driver_calls: %s\n", library ? "no memory" : dlerror());
        return 1;
    }
    int (*subscribe)(void **, void *, void *) = dlsym(library, "cuptiSubscribe");
    int (*enable)(uint32_t, void *, int) = dlsym(library, "cuptiEnableDomain");
    void *subscriber = NULL;
    if (!subscribe || !enable || subscribe(&subscriber, (void *)on_call, NULL) || enable(1, subscriber, DRIVER_API))
        fprintf(stderr, "driver_calls: CUPTI refuses\n");
    return 1;
}

/* Plays NCCL: a communicator takes its memory on a thread of its own, so many MiB as it has ranks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct { int ranks, device, result; } Communicator;

static Communicator made[8];
static int count;

__attribute__((noinline)) static void *take(void *of) {
    Communicator *communicator = of;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*allocate)(unsigned long long *, size_t) = NULL, (*retain)(void **, int) = NULL, (*set)(void *) = NULL;
    void *context = NULL;
    unsigned long long address = 0;
    *(void **)&allocate = dlsym(driver, "cuMemAlloc_v2");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
    communicator->result = retain(&context, 0) || set(context) || allocate(&address, (size_t)communicator->ranks << 20);
    return NULL;
}

int ncclCommInitRank(void **communicator, int ranks, ncclUniqueId id, int rank) {
    pthread_t thread;
    Communicator *own = &made[count++];
    if (rank >= ranks || id.internal[0] != 7 || id.internal[127] != 9) return 4;
    own->ranks = ranks;
    if (pthread_create(&thread, NULL, take, own)) return 2;
    pthread_join(thread, NULL);
    *communicator = own;
    return own->result ? 1 : 0;
}

int ncclCommInitRankConfig(void **communicator, int ranks, ncclUniqueId id, int rank, void *config) {
    return config ? ncclCommInitRank(communicator, ranks, id, rank) : 4;
}

int ncclCommSplit(void *communicator, int color, int key, void **split, void *config) {
    ncclUniqueId id = {{0}};
    id.internal[0] = 7;
    id.internal[127] = 9;
    if (color != 5 || config) return 4;
    return ncclCommInitRank(split, ((Communicator *)communicator)->ranks / 2, id, key);
}

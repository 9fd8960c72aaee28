/* A library that is linked against NCCL and makes communicators, as a framework does. */
#include <stddef.h>

typedef struct { char internal[128]; } ncclUniqueId;
int ncclCommInitRank(void **, int, ncclUniqueId, int);
int ncclCommInitRankConfig(void **, int, ncclUniqueId, int, void *);
int ncclCommSplit(void *, int, int, void **, void *);

static ncclUniqueId unique(void) {
    ncclUniqueId id = {{0}};
    id.internal[0] = 7;
    id.internal[127] = 9;
    return id;
}

__attribute__((noinline)) int world_group(void **communicator) {
    int config = 1;
    volatile int result = ncclCommInitRankConfig(communicator, 64, unique(), 1, &config);
    return result;
}

__attribute__((noinline)) int half_group(void *world, void **communicator) {
    volatile int result = ncclCommSplit(world, 5, 0, communicator, NULL);
    return result;
}

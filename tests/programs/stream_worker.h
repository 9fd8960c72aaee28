/* A thread of `stream_stress`: its streams, its blocks with their values, and what orders them. */
#ifndef STREAM_WORKER_H
#define STREAM_WORKER_H
#include "streams.h"
#include <stdatomic.h>

enum {
    SLOTS = 40,        /* blocks of a thread */
    DEVICES = 2,       /* at most */
    KINDS = 4,         /* streams that all threads share, of each device */
    OWN = 3,           /* a thread's own streams of each device: its default stream and two others */
    SHARED = KINDS * DEVICES,
    STREAMS = SHARED + OWN * DEVICES,
    CHECKS = 128,      /* values on their way to the host */
    ROOM = 64,         /* bytes of the host for one check; blocks up to this size are checked as a whole */
    PIECE = 16,        /* bytes at each checked place of a larger block */
    POOLS = 2, GRAPHS = 2, LIST = 64, GENERATIONS = 2, MOST_TOLD = 20, COUNTS = 9,
};

typedef struct { CUstream handle; int device, captures; } Stream;
/* `stream`: all work on the block so far is ordered before its later work there. `reach`: a bit for each device that may
   use it. `held`: a graph writes to it. */
typedef struct { CUdeviceptr address; size_t bytes; uint32_t value; int stream, reach, held, is_ordered; } Block;
typedef struct { Block block; long operation; } Check;
typedef struct { CUmemoryPool handle; int device, reach; } Pool;
/* `left`: what a launch allocates and does not free. `all`: every allocation of the graph. */
typedef struct {
    CUgraphExec exec;
    int device, frees_itself, held, is_live;
    uint32_t held_value;
    Block left;
    CUdeviceptr all[3];
    int count;
} Graph;

typedef struct {
    uint64_t state;
    int current, capturing, checks;
    long operation, allocations, frees, out_of_memory, graphs, launches, failed, streams, pools;
    Stream stream[STREAMS];
    CUevent event[DEVICES], fork[DEVICES]; /* the second are used in captures only */
    Block block[SLOTS];
    Check check[CHECKS];
    char *mirror;
    Pool pool[POOLS];
    Graph graph[GRAPHS];
} Worker;

static int devices;
static CUcontext context[DEVICES];
static _Atomic long wrong;
/* A context is not synchronised while a stream of it captures. */
static pthread_rwlock_t captures = PTHREAD_RWLOCK_INITIALIZER;

static uint64_t random_below(Worker *w, uint64_t below) { return (next(&w->state) >> 11) % below; }
static int one_in(Worker *w, int n) { return random_below(w, (uint64_t)n) == 0; }
static uint64_t duration(Worker *w) { return one_in(w, 10) ? 20000 + random_below(w, 200000) : random_below(w, 4000); }

static void enter(Worker *w, int device) {
    if (w->current != device) OK(cuCtxSetCurrent(context[device]));
    w->current = device;
}

/* A stream's handle, with its context current; the legacy stream has two. */
static CUstream on(Worker *w, int stream) {
    enter(w, w->stream[stream].device);
    CUstream handle = w->stream[stream].handle;
    return handle == LEGACY && one_in(w, 2) ? NULL : handle;
}

/* A stream of one of these devices that does not capture. */
static int pick(Worker *w, int reach) {
    for (;;) {
        int stream = (int)random_below(w, STREAMS);
        const Stream *found = &w->stream[stream];
        if (found->handle && !found->captures && reach >> found->device & 1) return stream;
    }
}

/* What comes later on `to` comes after what `from` has now. */
static void order(Worker *w, int from, int to) {
    if (from == to) return;
    CUstream first = on(w, from);
    CUevent event = w->event[w->stream[from].device];
    int own = one_in(w, 8);
    if (own) OK(cuEventCreate(&event, 2));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(on(w, to), event, 0));
    if (own) OK(cuEventDestroy_v2(event));
}

static void move(Worker *w, Block *block, int to) {
    order(w, block->stream, to);
    block->stream = to;
}

static int places(const Block *block) { return block->bytes > 4096 ? 3 : 2; }

/* Where a large block's value is written: its beginning, its end, and somewhere. */
static size_t place(const Block *block, int which) {
    size_t last = block->bytes - PIECE;
    size_t at[] = {0, last, block->value * 2654435761ull % last};
    return at[which] & ~(size_t)3;
}

static void put(Worker *w, Block *block, uint32_t value) {
    CUstream stream = on(w, block->stream);
    block->value = value;
    OK(touch(stream, block->address, block->bytes, 1, duration(w)));
    if (block->bytes <= ROOM) {
        OK(cuMemsetD8Async(block->address, (unsigned char)value, block->bytes, stream));
        return;
    }
    for (int i = 0; i < places(block); i++) OK(cuMemsetD32Async(block->address + place(block, i), value, PIECE / 4, stream));
}

static void put_new(Worker *w, Block *block) { put(w, block, (uint32_t)random_below(w, 1ull << 32)); }

static void tell_wrong(const Check *check, size_t offset, uint32_t found) {
    if (wrong++ >= MOST_TOLD) return;
    printf("wrong: byte %zu of block %#llx of %zu bytes on stream %d has %#x instead of %#x, checked by operation %ld\n", offset,
           check->block.address, check->block.bytes, check->block.stream, found, check->block.value, check->operation);
}

/* Waits for the values on their way and compares them. */
static void settle(Worker *w) {
    unsigned seen = 0;
    for (int i = 0; i < w->checks; i++) {
        int stream = w->check[i].block.stream;
        if (!(seen >> stream & 1)) OK(cuStreamSynchronize(on(w, stream)));
        seen |= 1u << stream;
    }
    for (int i = 0; i < w->checks; i++) {
        const Check *check = &w->check[i];
        const Block *block = &check->block;
        const char *bytes = w->mirror + ROOM * i;
        if (block->bytes <= ROOM) {
            for (size_t k = 0; k < block->bytes; k++)
                if ((unsigned char)bytes[k] != (unsigned char)block->value) tell_wrong(check, k, (unsigned char)bytes[k]);
            continue;
        }
        for (int k = 0; k < PIECE / 4 * places(block); k++) {
            uint32_t word;
            memcpy(&word, bytes + 4 * k, 4);
            if (word != block->value) tell_wrong(check, place(block, k / 4) + (size_t)(4 * (k % 4)), word);
        }
    }
    w->checks = 0;
}

/* Sends a block's value to the host, in its stream's order. */
static void verify(Worker *w, const Block *block) {
    if (w->checks == CHECKS) settle(w);
    char *to = w->mirror + ROOM * w->checks;
    w->check[w->checks++] = (Check){*block, w->operation};
    CUstream stream = on(w, block->stream);
    if (block->bytes <= ROOM) {
        OK(cuMemcpyDtoHAsync_v2(to, block->address, block->bytes, stream));
        return;
    }
    for (int i = 0; i < places(block); i++) OK(cuMemcpyDtoHAsync_v2(to + PIECE * i, block->address + place(block, i), PIECE, stream));
}

static CUresult free_on(Worker *w, const Block *block) {
    CUstream stream = on(w, block->stream);
    return stream == PER_THREAD && one_in(w, 2) ? cuMemFreeAsync_ptsz(block->address, NULL) : cuMemFreeAsync(block->address, stream);
}

/* Everything of a stream goes to another one of its device, so that it may capture or end. */
static void evacuate(Worker *w, int stream) {
    int to;
    do to = pick(w, 1 << w->stream[stream].device);
    while (to == stream);
    order(w, stream, to);
    for (int i = 0; i < SLOTS; i++)
        if (w->block[i].stream == stream) w->block[i].stream = to;
    for (int i = 0; i < w->checks; i++)
        if (w->check[i].block.stream == stream) w->check[i].block.stream = to;
    for (int i = 0; i < GRAPHS; i++)
        if (w->graph[i].left.stream == stream) w->graph[i].left.stream = to;
}

static void open_stream(Worker *w, int stream) {
    enter(w, w->stream[stream].device);
    OK(one_in(w, 2) ? cuStreamCreate(&w->stream[stream].handle, 1)
                    : cuStreamCreateWithPriority(&w->stream[stream].handle, 1, -(int)random_below(w, 3)));
    w->streams++;
}

/* One of the two streams of a thread that may capture or end. */
static int own_stream(int device, int which) { return SHARED + OWN * device + 1 + which; }
#endif

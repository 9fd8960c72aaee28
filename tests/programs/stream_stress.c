/* Stream-ordered memory at random: streams of every kind, events between them, captures and graphs, pools that come and
   go, two devices, several threads. Arguments: seed, threads, operations of each thread; how many
   hundredths of a second memory has at the end to go back to the device.
   Every block is written with a value of its own as soon as it is there, and must still hold it when it is freed. The
   program keeps CUDA's rules of order, so whatever the stand-in's race detector finds is the allocator's doing. */
#include "stream_graphs.h"

static Stream shared_stream[SHARED];
static long operations;
static _Atomic long totals[COUNTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Block list[LIST];
static int listed;

/* Verifies a block and frees it in one of the ways that there are. */
static void drop(Worker *w, Block *block) {
    verify(w, block);
    if (one_in(w, 8)) OK(touch(on(w, block->stream), block->address, block->bytes, 0, duration(w)));
    if (block->is_ordered ? one_in(w, 10) : !one_in(w, 4)) {
        /* The host has waited for all work on it. */
        OK(cuStreamSynchronize(on(w, block->stream)));
        OK(cuMemFree_v2(block->address));
    } else {
        if (one_in(w, 3)) move(w, block, pick(w, block->reach));
        OK(free_on(w, block));
    }
    w->frees += block->is_ordered;
    block->address = 0;
}

/* Bytes for a block: small ones more often, some of many MiB. */
static size_t some_bytes(Worker *w) {
    return one_in(w, 32) ? 1 + random_below(w, 24 * MIB) : 1 + random_below(w, 4ull << random_below(w, 21));
}

static CUresult allocate_on(Worker *w, Block *block, CUmemoryPool pool) {
    CUstream stream = on(w, block->stream);
    int by_thread = stream == PER_THREAD && one_in(w, 2);
    if (!pool) return by_thread ? cuMemAllocAsync_ptsz(&block->address, block->bytes, NULL) : cuMemAllocAsync(&block->address, block->bytes, stream);
    return by_thread ? cuMemAllocFromPoolAsync_ptsz(&block->address, block->bytes, pool, NULL)
                     : cuMemAllocFromPoolAsync(&block->address, block->bytes, pool, stream);
}

static void obtain(Worker *w, Block *block) {
    const Pool *pool = &w->pool[random_below(w, POOLS)];
    int uses_pool = pool->handle && one_in(w, 2);
    *block = (Block){.bytes = some_bytes(w), .is_ordered = !one_in(w, 12)};
    block->stream = pick(w, uses_pool && block->is_ordered ? pool->reach : 3);
    block->reach = uses_pool && block->is_ordered ? pool->reach : 1 << w->stream[block->stream].device;
    enter(w, w->stream[block->stream].device);
    CUresult result = block->is_ordered ? allocate_on(w, block, uses_pool ? pool->handle : NULL) : cuMemAlloc_v2(&block->address, block->bytes);
    if (result == OUT_OF_MEMORY) {
        block->address = 0;
        w->out_of_memory++;
        return;
    }
    OK(result);
    w->allocations += block->is_ordered;
    put_new(w, block);
}

/* A block with another one's value, copied on the device. */
static void copy(Worker *w, const Block *from, Block *to) {
    CUstream stream = on(w, from->stream);
    Block made = *from;
    made.held = 0, made.is_ordered = 1, made.reach = 1 << w->stream[from->stream].device;
    CUresult result = cuMemAllocAsync(&made.address, made.bytes, stream);
    if (result == OUT_OF_MEMORY) {
        w->out_of_memory++;
        return;
    }
    OK(result);
    w->allocations++;
    OK(touch(stream, made.address, made.bytes, 1, duration(w)));
    if (made.bytes <= ROOM) OK(cuMemcpyDtoDAsync_v2(made.address, from->address, made.bytes, stream));
    for (int i = 0; made.bytes > ROOM && i < places(&made); i++) {
        size_t at = place(&made, i);
        OK(cuMemcpyDtoDAsync_v2(made.address + at, from->address + at, PIECE, stream));
    }
    *to = made;
}

/* Two streams read a block at once. */
static void read_beside(Worker *w, const Block *block) {
    Block beside = *block;
    move(w, &beside, pick(w, block->reach));
    OK(touch(on(w, beside.stream), block->address, block->bytes, 0, duration(w)));
    OK(touch(on(w, block->stream), block->address, block->bytes, 0, duration(w)));
    verify(w, &beside);
    order(w, beside.stream, block->stream);
}

static void renew_stream(Worker *w) {
    int stream = own_stream((int)random_below(w, (uint64_t)devices), (int)random_below(w, 2));
    if (w->stream[stream].captures) return;
    evacuate(w, stream);
    OK(cuStreamDestroy_v2(on(w, stream)));
    open_stream(w, stream);
}

static void some_pool(Worker *w) {
    Pool *pool = &w->pool[random_below(w, POOLS)];
    unsigned long long threshold[] = {0, 8 * MIB, keep_all};
    if (!pool->handle) {
        pool->device = (int)random_below(w, (uint64_t)devices);
        pool->reach = 1 << pool->device;
        pool->handle = new_pool(pool->device, one_in(w, 4) ? 64 * MIB : 0);
        w->pools++;
    }
    AccessDesc far = {{1, 1 - pool->device}, 3};
    switch (random_below(w, 8)) {
    case 0:
        OK(cuMemPoolDestroy(pool->handle));
        pool->handle = NULL;
        break;
    case 1: OK(cuMemPoolTrimTo(pool->handle, random_below(w, 32 * MIB))); break;
    case 2: OK(cuMemPoolSetAttribute(pool->handle, RELEASE_THRESHOLD, &threshold[random_below(w, 3)])); break;
    case 3: OK(cuDeviceSetMemPool(pool->device, pool->handle)); break;
    case 4: OK(cuDeviceSetMemPool(pool->device, default_pool(pool->device))); break;
    case 5: OK(cuMemPoolSetAttribute(default_pool(pool->device), RELEASE_THRESHOLD, &threshold[random_below(w, 3)])); break;
    case 6: attribute(pool->handle, USED_NOW + (int)random_below(w, 2)); break;
    default:
        if (devices < 2) break;
        OK(cuMemPoolSetAccess(pool->handle, &far, 1));
        pool->reach = 3;
    }
}

/* A block changes hands: another thread goes on with it. */
static void hand_over(Worker *w, Block *block) {
    Block mine = *block;
    if (block->address) {
        while (mine.stream >= SHARED) move(w, &mine, pick(w, mine.reach));
        *block = mine;
    }
    OK(pthread_mutex_lock(&lock));
    if (block->address && listed < LIST) {
        list[listed++] = mine;
        block->address = 0;
    } else if (!block->address && listed > 0) {
        *block = list[--listed];
    }
    OK(pthread_mutex_unlock(&lock));
}

static void wait_for_context(Worker *w) {
    if (w->capturing || pthread_rwlock_trywrlock(&captures)) return;
    int device = (int)random_below(w, (uint64_t)devices);
    enter(w, device);
    if (one_in(w, 2)) {
        OK(cuCtxSynchronize());
    } else {
        OK(cuCtxRecordEvent(context[device], w->event[device]));
        OK(cuCtxWaitEvent(context[device], w->event[device]));
    }
    OK(pthread_rwlock_unlock(&captures));
}

static void step(Worker *w) {
    Block *block = &w->block[random_below(w, SLOTS)];
    int what = (int)random_below(w, 100), stream = pick(w, 3);
    w->operation++;
    if (what < 2) {
        OK(cuStreamSynchronize(on(w, stream)));
    } else if (what < 3) {
        if (one_in(w, 8)) wait_for_context(w);
    } else if (what < 5) {
        CUresult result = one_in(w, 2) ? cuStreamQuery(on(w, stream)) : cuEventQuery(w->event[0]);
        TRUE(result == SUCCESS || result == NOT_READY);
    } else if (what < 7) {
        renew_stream(w);
    } else if (what < 10) {
        some_pool(w);
    } else if (what < 14) {
        if (!w->capturing) some_graph(w);
    } else if (what < 15) {
        enter(w, (int)random_below(w, (uint64_t)devices));
        free_memory();
    } else if (what < 22 && !block->held) {
        hand_over(w, block);
    } else if (what < 35 && block->address) {
        Block *other = &w->block[random_below(w, SLOTS)];
        if (one_in(w, 2)) move(w, block, pick(w, block->reach));
        if (one_in(w, 4)) read_beside(w, block);
        else if (one_in(w, 4) && !other->address) copy(w, block, other);
        else put_new(w, block);
    } else if (!block->address) {
        obtain(w, block);
    } else if (!block->held) {
        drop(w, block);
    }
}

static Worker *begin(uint64_t seed) {
    Worker *w = calloc(1, sizeof *w);
    TRUE(w);
    w->state = 88172645463325252ull ^ seed * 0x9e3779b97f4a7c15ull;
    w->current = -1;
    memcpy(w->stream, shared_stream, sizeof shared_stream);
    for (int d = 0; d < devices; d++) {
        enter(w, d);
        OK(cuEventCreate(&w->event[d], 2));
        OK(cuEventCreate(&w->fork[d], 2));
        OK(cuEventRecord(w->event[d], LEGACY));
        for (int i = 0; i < OWN; i++) w->stream[SHARED + OWN * d + i] = (Stream){PER_THREAD, d, 0};
        for (int i = 0; i < 2; i++) open_stream(w, own_stream(d, i));
    }
    /* For every context, as CU_MEMHOSTALLOC_PORTABLE. */
    OK(cuMemHostAlloc((void **)&w->mirror, CHECKS * ROOM, 1));
    return w;
}

static void end(Worker *w) {
    for (int i = 0; i < GRAPHS; i++)
        if (w->graph[i].exec) drop_graph(w, &w->graph[i]);
    for (int i = 0; i < SLOTS; i++)
        if (w->block[i].address) drop(w, &w->block[i]);
    for (int i = 0; i < POOLS; i++)
        if (w->pool[i].handle) OK(cuMemPoolDestroy(w->pool[i].handle));
    settle(w);
    for (int i = 0; i < 2 * devices; i++) OK(cuStreamDestroy_v2(on(w, own_stream(i / 2, i % 2))));
    for (int d = 0; d < devices; d++) {
        OK(cuEventDestroy_v2(w->event[d]));
        OK(cuEventDestroy_v2(w->fork[d]));
    }
    OK(cuMemFreeHost(w->mirror));
    long counts[COUNTS] = {w->operation, w->allocations, w->frees, w->out_of_memory, w->graphs, w->launches, w->failed, w->streams, w->pools};
    for (int i = 0; i < COUNTS; i++) totals[i] += counts[i];
    free(w);
}

static void *run(void *seed) {
    Worker *w = begin((uint64_t)(uintptr_t)seed);
    while (w->operation < operations / GENERATIONS) step(w);
    end(w);
    return NULL;
}

/* The default pool of a device is empty, and most of the memory can be had in one piece. Two thirds of 96 MiB are a power
   of two: an allocator of such sizes can do it, too. */
static void finish(int device) {
    unsigned long long zero = 0;
    size_t total = 0;
    CUdeviceptr block = 0;
    CUmemoryPool pool = default_pool(device);
    OK(cuCtxSetCurrent(context[device]));
    OK(cuCtxSynchronize());
    OK(cuDeviceGraphMemTrim(device));
    printf("used at the end: %llu\n", attribute(pool, USED_NOW));
    OK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &zero));
    OK(cuDeviceTotalMem_v2(&total, device));
    SAY("two thirds in one block", cuMemAllocAsync(&block, total / 3 * 2, NULL));
    if (block) OK(cuMemFreeAsync(block, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(pool, 0));
    printf("reserved at the end: %llu\n", attribute(pool, RESERVED_NOW));
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int threads = argc > 2 ? atoi(argv[2]) : 4;
    operations = argc > 3 ? atol(argv[3]) : 10000;
    int patience = argc > 4 ? atoi(argv[4]) : 1000;
    size_t before[DEVICES];
    pthread_t thread[64];
    TRUE(threads <= 64);
    start_streams();
    OK(cuDeviceGetCount(&devices));
    if (devices > DEVICES) devices = DEVICES;
    for (int d = 0; d < devices; d++) {
        OK(cuDevicePrimaryCtxRetain(&context[d], d));
        OK(cuCtxSetCurrent(context[d]));
        Stream *stream = &shared_stream[KINDS * d];
        for (int i = 0; i < KINDS; i++) stream[i] = (Stream){LEGACY, d, 0};
        stream[1].handle = side_stream();
        OK(cuStreamCreateWithPriority(&stream[2].handle, 1, -1));
        OK(cuStreamCreate(&stream[3].handle, 0));
        before[d] = driver_free();
    }
    for (int g = 0; g < GENERATIONS; g++) {
        for (int i = 0; i < threads; i++) OK(pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)(seed * 1000 + (uint64_t)(g * threads + i + 1))));
        for (int i = 0; i < threads; i++) OK(pthread_join(thread[i], NULL));
    }
    Worker *w = begin(seed);
    while (listed > 0) drop(w, &list[--listed]);
    end(w);
    for (int d = 0; d < devices; d++) finish(d);
    static const char *const names[COUNTS] = {"operations", "allocations", "frees", "out-of-memory", "graphs", "launches", "failed", "streams", "pools"};
    printf("#");
    for (int i = 0; i < COUNTS; i++) printf(" %s %ld", names[i], (long)totals[i]);
    printf("\n");
    /* What is kept for later, if anything is, decays. */
    for (int d = 0; d < devices; d++) {
        OK(cuCtxSetCurrent(context[d]));
        for (int i = 0; i < patience && driver_free() != before[d]; i++) sleep_ms(10);
        printf("free memory as before: %d\n", driver_free() == before[d]);
    }
    printf("wrong bytes: %ld\n", (long)wrong);
    return wrong != 0;
}

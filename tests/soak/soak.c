/* Everything that comes and goes in a long run: threads, streams, contexts, captures and graphs, pools, forks, and memory
   that decays. Arguments: seconds, seconds between two lines of figures. Once for each line everything rests: what is
   left then must be the same in the last minute as in the second. Contents of all blocks are checked throughout.

   Each line is `figures NAME VALUE…`; scripts/soak reads them. The last line is `end NAME VALUE…`. */
#include "../programs/streams.h"
#include <dirent.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { WORKERS = 4, KEPT_GRAPHS = 4, ROLES = 5, SLOTS = 12 };

typedef struct { CUdeviceptr address; size_t bytes; CUstream stream; uint32_t value; int ordered; } Block;

static int devices;
static CUcontext primary[2];
static _Atomic long operations, wrong, refused, streams_now, streams_peak, contexts_made, graphs_made, threads_made, forks_made, pools_made;
static _Atomic uint32_t values = 1;
static _Atomic int over;
/* Held for reading by what works, for writing while everything rests. */
static pthread_rwlock_t rest;
static size_t (*stats)(uint64_t *, size_t);

static void more_streams(long more) {
    long now = streams_now += more, peak = streams_peak;
    while (now > peak && !atomic_compare_exchange_weak(&streams_peak, &peak, now)) continue;
}

static CUstream stream_made(void) {
    more_streams(1);
    return side_stream();
}

static void stream_ended(CUstream stream) {
    OK(cuStreamDestroy_v2(stream));
    more_streams(-1);
}

/* The block's value at both ends of it. */
static void fill(Block *block) {
    block->value = values++;
    OK(cuMemsetD32Async(block->address, block->value, 16, block->stream));
    if (block->bytes > 128) OK(cuMemsetD32Async(block->address + (block->bytes - 64) / 4 * 4, block->value, 16, block->stream));
    operations += 2;
}

static void check(Block *block) {
    uint32_t found[16], last[16];
    for (int i = 0; i < 16; i++) last[i] = block->value;
    OK(cuMemcpyDtoHAsync_v2(found, block->address, 64, block->stream));
    if (block->bytes > 128) OK(cuMemcpyDtoHAsync_v2(last, block->address + (block->bytes - 64) / 4 * 4, 64, block->stream));
    OK(cuStreamSynchronize(block->stream));
    for (int i = 0; i < 16; i++)
        if (found[i] != block->value || last[i] != block->value) {
            if (wrong++ < 5)
                printf("wrong contents: block %#llx of %zu bytes holds %u and %u, not %u\n", block->address, block->bytes, found[i],
                       last[i], block->value);
            break;
        }
    operations += 2;
}

/* A block of either family, with its value; none if memory is short. */
static Block take(CUstream stream, CUmemoryPool pool, uint64_t random) {
    Block block = {.stream = stream, .bytes = 128 + (random >> 8) % ((size_t)512 << random % 14), .ordered = pool || (random >> 60 & 1)};
    CUresult result = pool            ? cuMemAllocFromPoolAsync(&block.address, block.bytes, pool, stream)
                      : block.ordered ? cuMemAllocAsync(&block.address, block.bytes, stream)
                                      : cuMemAlloc_v2(&block.address, block.bytes);
    operations++;
    if (result == OUT_OF_MEMORY) {
        refused++;
        block.address = 0;
        return block;
    }
    OK(result);
    fill(&block);
    return block;
}

static void give(Block *block) {
    check(block);
    if (block->ordered) OK(cuMemFreeAsync(block->address, block->stream));
    else OK(cuMemFree_v2(block->address));
    block->address = 0;
    operations++;
}

/* Blocks that come and go on one stream. */
static void churn(CUstream stream, CUmemoryPool pool, uint64_t *state, int steps) {
    Block block[SLOTS] = {{0}};
    for (int i = 0; i < steps; i++) {
        uint64_t random = next(state);
        Block *one = &block[random % SLOTS];
        if (one->address) give(one);
        else *one = take(stream, pool, next(state));
        if (one->address && random >> 40 & 1) OK(work(stream, one->address, one->bytes, 0, random >> 50 & 0xfff));
    }
    for (int i = 0; i < SLOTS; i++)
        if (block[i].address) give(&block[i]);
}

/* A thread that comes, works on its default stream and on one that it makes, and goes. */
static void *visit(void *seed) {
    uint64_t state = 0x9e3779b97f4a7c15ull * (uintptr_t)seed + 1;
    OK(cuCtxSetCurrent(primary[next(&state) % (uint64_t)devices]));
    more_streams(1);
    churn(PER_THREAD, NULL, &state, 16);
    CUstream own = stream_made();
    churn(own, NULL, &state, 16);
    stream_ended(own);
    more_streams(-1);
    threads_made++;
    return NULL;
}

static void threads_come_and_go(uint64_t *state) {
    pthread_t thread[WORKERS];
    for (int i = 0; i < WORKERS; i++) OK(pthread_create(&thread[i], NULL, visit, (void *)(uintptr_t)(next(state) >> 16)));
    for (int i = 0; i < WORKERS; i++) OK(pthread_join(thread[i], NULL));
}

/* A context with work on its own stream and on the legacy one; `cudaMalloc`'s memory may go with it. */
static void contexts_come_and_go(uint64_t *state) {
    CUcontext context = NULL;
    OK(cuCtxCreate_v2(&context, 0, (CUdevice)(next(state) % (uint64_t)devices)));
    CUstream stream = stream_made();
    more_streams(1);
    churn(stream, NULL, state, 12);
    churn(LEGACY, NULL, state, 6);
    CUdeviceptr left = 0;
    if (next(state) & 1) OK(cuMemAlloc_v2(&left, 100000));
    OK(cuCtxSynchronize());
    if (next(state) & 1) OK(cuStreamDestroy_v2(stream));
    OK(cuCtxDestroy_v2(context));
    more_streams(-2);
    contexts_made++;
}

/* Graphs that are kept. */
static CUgraphExec kept[KEPT_GRAPHS];

/* Before the figures are taken: what others freed while one of them was captured waits for it. */
static void drop_graphs(void) {
    for (int i = 0; i < KEPT_GRAPHS; i++) {
        if (kept[i]) OK(cuGraphExecDestroy(kept[i]));
        kept[i] = NULL;
    }
}

/* Graphs with memory of their own, kept, replayed and destroyed in turn. */
static void graphs_come_and_go(uint64_t *state) {
    static unsigned turn;
    CUgraph graph = NULL;
    CUdeviceptr inner = 0;
    OK(cuCtxSetCurrent(primary[0]));
    CUstream stream = stream_made();
    Block outer = take(stream, NULL, next(state));
    CUgraphExec *slot = &kept[turn++ % KEPT_GRAPHS];
    if (*slot) OK(cuGraphExecDestroy(*slot));
    /* Thread-local: the others go on, and what they free meanwhile waits for the graph. */
    OK(cuStreamBeginCapture_v2(stream, 1));
    OK(cuMemAllocAsync(&inner, 64 * KIB, stream));
    OK(cuMemsetD32Async(inner, 7, 16, stream));
    if (outer.address) fill(&outer);
    OK(cuMemFreeAsync(inner, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(slot, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 3; i++) {
        OK(cuGraphLaunch(*slot, stream));
        if (outer.address) check(&outer);
        churn(stream, NULL, state, 4);
    }
    OK(cuStreamSynchronize(stream));
    /* The graph writes to the block: it does not outlive it. */
    OK(cuGraphExecDestroy(*slot));
    *slot = NULL;
    if (outer.address) give(&outer);
    /* One without memory from outside stays. */
    OK(cuStreamBeginCapture_v2(stream, 1));
    OK(cuMemAllocAsync(&inner, 4096, stream));
    OK(cuMemFreeAsync(inner, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(slot, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < KEPT_GRAPHS; i++)
        if (kept[i]) OK(cuGraphLaunch(kept[i], stream));
    OK(cuStreamSynchronize(stream));
    stream_ended(stream);
    graphs_made++;
}

static void pools_come_and_go(uint64_t *state) {
    OK(cuCtxSetCurrent(primary[0]));
    CUmemoryPool pool = new_pool(0, 0);
    unsigned long long threshold = next(state) & 1 ? keep_all : 0;
    OK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &threshold));
    CUstream stream = stream_made();
    churn(stream, pool, state, 16);
    OK(cuMemPoolTrimTo(pool, next(state) % MIB));
    churn(stream, pool, state, 8);
    OK(cuStreamSynchronize(stream));
    stream_ended(stream);
    OK(cuMemPoolDestroy(pool));
    /* The default pool keeps nothing, or all, from here on. */
    OK(cuMemPoolSetAttribute(default_pool(0), RELEASE_THRESHOLD, &threshold));
    OK(cuMemPoolTrimTo(default_pool(0), 0));
    pools_made++;
}

/* A child of fork has no CUDA; its calls come back, and it ends. */
static void forks_come_and_go(uint64_t *state) {
    if (next(state) % 64) return;
    pid_t child = fork();
    TRUE(child >= 0);
    if (child == 0) {
        CUdeviceptr block = 0;
        alarm(20);
        cuMemAlloc_v2(&block, 4096);
        _exit(7);
    }
    int status = 0;
    TRUE(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
        printf("a child of fork ended with %d\n", status);
        wrong++;
    }
    forks_made++;
}

static void *play(void *number) {
    static void (*const role[ROLES])(uint64_t *) = {threads_come_and_go, contexts_come_and_go, graphs_come_and_go, pools_come_and_go, forks_come_and_go};
    uint64_t state = 88172645463325252ull + (uintptr_t)number;
    /* Its role's driver calls beside CUDA's contexts: each sets the one that it needs. */
    while (!over) {
        OK(pthread_rwlock_rdlock(&rest));
        role[(uintptr_t)number](&state);
        OK(pthread_rwlock_unlock(&rest));
        /* Several of these programs run on a small machine at once. */
        sleep_ms(20);
    }
    return NULL;
}

static long entries(const char *folder) {
    DIR *directory = opendir(folder);
    long count = 0;
    if (!directory) return -1;
    while (readdir(directory)) count++;
    closedir(directory);
    return count - 2;
}

static long status_kib(const char *name) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[200];
    long value = -1;
    if (!file) return -1;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) value = atol(line + strlen(name) + 1);
    fclose(file);
    return value;
}

/* KiB of resident memory but for the stand-in driver's: its device memory, and its heap, which is mapped from /dev/zero. */
static long resident_kib(void) {
    int (*owns)(CUdeviceptr);
    *(void **)&owns = dlsym(RTLD_DEFAULT, "standin_owns");
    TRUE(owns != NULL);
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[4400];
    long kib = 0, bytes = 0;
    int is_own = 0;
    if (!file) return -1;
    while (fgets(line, sizeof line, file)) {
        unsigned long long start = 0;
        if (sscanf(line, "Rss: %ld", &bytes) == 1) kib += is_own ? 0 : bytes;
        else if (sscanf(line, "%llx-", &start) == 1 && strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
            is_own = owns(start) || strstr(line, "memfd:standin") || strstr(line, "/dev/zero");
    }
    fclose(file);
    return kib;
}

static size_t held(void) {
    size_t bytes = 0;
    for (int i = 0; i < devices; i++) {
        size_t total = 0;
        OK(cuCtxSetCurrent(primary[i]));
        OK(cuDeviceTotalMem_v2(&total, i));
        bytes += total - driver_free();
    }
    OK(cuCtxSetCurrent(primary[0]));
    return bytes;
}

static void figures(double seconds, long done) {
    uint64_t own[7] = {0};
    malloc_trim(0);
    struct mallinfo2 heap = mallinfo2();
    if (stats) stats(own, 7);
    printf("figures seconds %.0f rss %ld process %ld anonymous %ld heap %ld descriptors %ld threads %ld address_space %ld queues %ld live %ld allocated %ld "
           "cached %ld reserved %ld quarantined %ld pools %ld held %zu rate %.0f wrong %ld refused %ld streams_peak %ld\n",
           seconds, resident_kib(), status_kib("VmRSS"), status_kib("RssAnon"), (long)((heap.uordblks + heap.hblkhd) >> 10), entries("/proc/self/fd"), entries("/proc/self/task"), status_kib("VmSize"),
           (long)own[6], (long)own[0], (long)own[1], (long)own[2], (long)own[3], (long)own[4], (long)own[5], held(), (double)done, wrong,
           refused, streams_peak);
    fflush(stdout);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 60, every = argc > 2 ? atof(argv[2]) : 60;
    pthread_rwlockattr_t fair;
    /* What glibc keeps for its own arenas is not what is measured. */
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    OK(pthread_rwlockattr_init(&fair));
    OK(pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
    OK(pthread_rwlock_init(&rest, &fair));
    start_streams();
    OK(cuDeviceGetCount(&devices));
    if (devices > 2) devices = 2;
    for (int i = 0; i < devices; i++) OK(cuDevicePrimaryCtxRetain(&primary[i], i));
    *(void **)&stats = dlsym(RTLD_DEFAULT, "gpushim_stats");
    more_streams(2 * devices);
    pthread_t thread[ROLES];
    double begun = now(), mark = begun;
    long before = 0;
    for (uintptr_t i = 0; i < ROLES; i++) OK(pthread_create(&thread[i], NULL, play, (void *)i));
    while (now() - begun < seconds) {
        double until = begun + every * (double)(1 + (long)((now() - begun) / every));
        while (now() < until) sleep_ms(20);
        OK(pthread_rwlock_wrlock(&rest));
        long done = operations - before;
        double took = now() - mark;
        for (int i = 0; i < devices; i++) {
            OK(cuCtxSetCurrent(primary[i]));
            OK(cuCtxSynchronize());
        }
        OK(cuCtxSetCurrent(primary[0]));
        drop_graphs();
        /* Longer than GPUSHIM_DECAY of scripts/soak, so that what decays has decayed. */
        sleep_ms(1500);
        figures(now() - begun, (long)((double)done / took));
        before = operations;
        mark = now();
        OK(pthread_rwlock_unlock(&rest));
    }
    over = 1;
    for (int i = 0; i < ROLES; i++) OK(pthread_join(thread[i], NULL));
    printf("end operations %ld threads %ld contexts %ld graphs %ld pools %ld forks %ld wrong %ld\n", operations, threads_made,
           contexts_made, graphs_made, pools_made, forks_made, wrong);
    return wrong != 0;
}

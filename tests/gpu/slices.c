/* Pairs of an allocation and a free in short slices, each begun by a line on stdin: scripts/compare-speed has
 * processes with different builds of the shim take turns on one core, so that all see the same machine.
 *
 *     slices CASE LAP CORE
 *
 *   hit       cuMemAlloc and cuMemFree of 256 cached blocks of 1 MiB in turn, whose work is complete
 *   ordered   the same of one block, with work queued on it before each free
 *   threads   `hit`, by 8 threads at once, on any core
 *   one       cuMemAllocAsync and cuMemFreeAsync of one size on one stream, while 1,000 blocks of mixed sizes live
 *   mixed     the same of the sizes of freed blocks, in a random order
 *
 * LAP pairs of hits, or of cuMemAllocAsync in its cases, come first: as many as the ring of a trace has room for, so that
 * no slice pays for new pages of its file. Then the calling thread stays on CORE.
 *
 * A line has the number of pairs of a slice (of each thread). The answer is a line with the ns of one pair; pairs that
 * warm the caches are made before and not counted. The end of stdin ends the program. Needs no CUDA headers.
 */
#define _GNU_SOURCE
#include "live_blocks.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef uint64_t word;

enum { BLOCKS = 256, BYTES = 1 << 20, THREADS = 8, LIVE = 1000, WARM = 2 * BLOCKS, RELEASE_THRESHOLD = 4 };

static int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *), (*synchronize)(void);
static int (*create_stream)(void **, unsigned), (*fill)(word, unsigned char, size_t, void *);
static int (*allocate)(word *, size_t), (*release)(word);
static int (*allocate_on)(word *, size_t, void *), (*release_on)(word, void *);
static int (*default_pool)(void **, int), (*set_attribute)(void *, int, void *);
static void *context, *stream;

/* Sizes of freed blocks, and the order in which they are asked for. */
static size_t asked[LIVE];
static unsigned short order[1 << 14];

static void must(int code, const char *what)
{
    if (__builtin_expect(code != 0, 0)) {
        fprintf(stderr, "slices: %s: %d\n", what, code);
        exit(1);
    }
}

static void start(void)
{
    static const struct {
        const char *name;
        void *place;
    } functions[] = {
        {"cuInit", &init}, {"cuDevicePrimaryCtxRetain", &retain}, {"cuCtxSetCurrent", &set_current},
        {"cuCtxSynchronize", &synchronize}, {"cuStreamCreate", &create_stream}, {"cuMemsetD8Async", &fill},
        {"cuMemAlloc_v2", &allocate}, {"cuMemFree_v2", &release}, {"cuMemAllocAsync", &allocate_on},
        {"cuMemFreeAsync", &release_on}, {"cuDeviceGetDefaultMemPool", &default_pool},
        {"cuMemPoolSetAttribute", &set_attribute},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = library ? dlsym(library, functions[i].name) : NULL;
        must(!found, functions[i].name);
        memcpy(functions[i].place, &found, sizeof found);
    }
    must(init(0), "cuInit");
    must(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(set_current(context), "cuCtxSetCurrent");
    must(create_stream(&stream, 1), "cuStreamCreate");
}

/* Has `count` blocks in the cache whose work is known to be complete. */
static void refill(int count)
{
    static word blocks[BLOCKS * THREADS];
    for (int i = 0; i < count; i++)
        must(allocate(&blocks[i], BYTES), "cuMemAlloc");
    for (int i = 0; i < count; i++)
        must(release(blocks[i]), "cuMemFree");
    must(synchronize(), "cuCtxSynchronize");
}

/* 1,000 live blocks of mixed sizes, and as many holes between them. */
static void populate(int one_size)
{
    static word blocks[2 * LIVE];
    static size_t sizes[2 * LIVE];
    struct lb_random random = {LIVE};
    size_t spent = 0;
    void *pool = NULL;
    uint64_t keep = UINT64_MAX;
    must(default_pool(&pool, 0), "cuDeviceGetDefaultMemPool");
    must(set_attribute(pool, RELEASE_THRESHOLD, &keep), "cuMemPoolSetAttribute");
    for (int i = 0; i < 2 * LIVE; i++) {
        sizes[i] = lb_size(&random, spent);
        spent += sizes[i];
        must(allocate_on(&blocks[i], sizes[i], stream), "cuMemAllocAsync");
    }
    for (int i = 0; i < LIVE; i++) {
        int gone = 2 * i + (int)(lb_next(&random) & 1);
        must(release_on(blocks[gone], stream), "cuMemFreeAsync");
        asked[i] = sizes[gone];
    }
    must(synchronize(), "cuCtxSynchronize");
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        order[i] = one_size ? 0 : (unsigned short)(lb_next(&random) % LIVE);
}

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void hits(long pairs)
{
    for (long i = 0; i < pairs; i++) {
        word block;
        must(allocate(&block, BYTES), "cuMemAlloc");
        must(release(block), "cuMemFree");
    }
}

/* In rounds of as many pairs as there are blocks. What was freed must wait until the context is idle: the
 * synchronisation between rounds is not counted. */
static double hit(long pairs)
{
    double spent = 0;
    for (long done = 0; done < pairs; done += BLOCKS) {
        must(synchronize(), "cuCtxSynchronize");
        double from = now_ns();
        hits(BLOCKS);
        spent += now_ns() - from;
    }
    return spent / (double)((pairs + BLOCKS - 1) / BLOCKS * BLOCKS);
}

static double ordered(long pairs)
{
    double spent = 0;
    for (long i = 0; i < pairs; i++) {
        word block;
        double from = now_ns();
        must(allocate(&block, BYTES), "cuMemAlloc");
        spent += now_ns() - from;
        must(fill(block, 1, BYTES, stream), "cuMemsetD8Async");
        from = now_ns();
        must(release(block), "cuMemFree");
        spent += now_ns() - from;
        /* So that the queue does not grow without bound. */
        if (i % 64 == 63)
            must(synchronize(), "cuCtxSynchronize");
    }
    must(synchronize(), "cuCtxSynchronize");
    return spent / (double)pairs;
}

static double on_stream(long pairs)
{
    double from = now_ns();
    for (long i = 0; i < pairs; i++) {
        word block;
        must(allocate_on(&block, asked[order[i % (sizeof order / sizeof *order)]], stream), "cuMemAllocAsync");
        must(release_on(block, stream), "cuMemFreeAsync");
    }
    return (now_ns() - from) / (double)pairs;
}

static pthread_barrier_t gate;
static double spent[THREADS];
static long pairs_each;

static void *work(void *argument)
{
    must(set_current(context), "cuCtxSetCurrent");
    for (;;) {
        pthread_barrier_wait(&gate);
        spent[(size_t)argument] = hit(pairs_each);
        pthread_barrier_wait(&gate);
    }
    return NULL;
}

static double threads(long pairs)
{
    double sum = 0;
    pairs_each = pairs;
    pthread_barrier_wait(&gate);
    pthread_barrier_wait(&gate);
    for (int i = 0; i < THREADS; i++)
        sum += spent[i];
    return sum / THREADS;
}

static void start_threads(void)
{
    refill(BLOCKS * THREADS);
    must(pthread_barrier_init(&gate, NULL, THREADS + 1), "pthread_barrier_init");
    for (size_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        must(pthread_create(&thread, NULL, work, (void *)i), "pthread_create");
    }
}

/* The calling thread only: what the shim started before runs where it likes. */
static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    must(sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *name = argv[1];
    long lap = atol(argv[2]);
    double (*slice)(long) = NULL;
    start();
    if (!strcmp(name, "hit") || !strcmp(name, "ordered")) {
        refill(BLOCKS);
        hit(lap);
        slice = *name == 'h' ? hit : ordered;
    } else if (!strcmp(name, "threads")) {
        start_threads();
        hit(lap);
        slice = threads;
    } else if (!strcmp(name, "one") || !strcmp(name, "mixed")) {
        populate(*name == 'o');
        on_stream(lap);
        slice = on_stream;
    } else {
        return 2;
    }
    slice(WARM);
    if (slice != threads)
        pin(atoi(argv[3]));
    char line[32];
    for (puts("ready"), fflush(stdout); fgets(line, sizeof line, stdin); fflush(stdout)) {
        slice(WARM);
        printf("%.3f\n", slice(atol(line)));
    }
    fflush(stdout);
    /* Threads still wait: what they would free goes with the process. */
    _Exit(0);
}

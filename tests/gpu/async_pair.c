/* The price of one cuMemAllocAsync + cuMemFreeAsync pair that hits, at the driver door (dlsym on libcuda),
 * while 1, 100, 1,000 and 10,000 other blocks of mixed sizes live. Twice as many are allocated at first and
 * half of them freed again, at random, so that there is a choice of holes; the pairs ask for sizes of those.
 *
 * Then one size again and again (`same_`).
 *
 * With `--threads N` it times other pairs: of one thread, then of N at once, each on a stream of its own, of one size (`same_mean`), of
 * seven sizes from 64 KiB to 4 MiB (`mean`), and of twelve blocks that are freed in the reverse order (`deep_mean`).
 *
 * Prints a line of JSON for each number of live blocks; times in ns. `p50` and `p99` are of single pairs
 * between two readings of the time stamp counter, nothing subtracted; `mean` is over all pairs of a
 * loop without a clock in it. Native and under the shim it is the same program; the driver's pool keeps its
 * memory (release threshold), as PyTorch sets it. `--legacy` uses the legacy default stream.
 * Needs no CUDA headers.
 */
#define _GNU_SOURCE
#include "live_blocks.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef uint64_t word;

static int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *), (*synchronize)(void);
static int (*create_stream)(void **, unsigned), (*default_pool)(void **, int), (*set_attribute)(void *, int, void *);
static int (*get_attribute)(void *, int, void *), (*allocate)(word *, size_t, void *), (*release)(word, void *);

/* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD and CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT. */
enum { RELEASE_THRESHOLD = 4, RESERVED = 5, MOST_LIVE = 10000, SIZES = 4096 };

static void must(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "%s: %d\n", what, code);
        exit(1);
    }
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "no %s in libcuda\n", name);
        exit(2);
    }
    return found;
}

static void *the_context;

static void *start(int legacy)
{
    static const struct {
        const char *name;
        void *place;
    } functions[] = {
        {"cuInit", &init}, {"cuDevicePrimaryCtxRetain", &retain}, {"cuCtxSetCurrent", &set_current},
        {"cuCtxSynchronize", &synchronize}, {"cuStreamCreate", &create_stream},
        {"cuDeviceGetDefaultMemPool", &default_pool}, {"cuMemPoolSetAttribute", &set_attribute},
        {"cuMemPoolGetAttribute", &get_attribute}, {"cuMemAllocAsync", &allocate}, {"cuMemFreeAsync", &release},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL, *stream = NULL, *pool = NULL;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = symbol(library, functions[i].name);
        memcpy(functions[i].place, &found, sizeof found);
    }
    must(init(0), "cuInit");
    must(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(set_current(context), "cuCtxSetCurrent");
    the_context = context;
    if (!legacy)
        must(create_stream(&stream, 1), "cuStreamCreate");
    uint64_t keep = UINT64_MAX;
    must(default_pool(&pool, 0), "cuDeviceGetDefaultMemPool");
    must(set_attribute(pool, RELEASE_THRESHOLD, &keep), "cuMemPoolSetAttribute");
    return stream;
}

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double ns_per_tick(void)
{
    double from = now_ns();
    uint64_t first = lb_ticks();
    while (now_ns() - from < 2e7)
        ;
    return (now_ns() - from) / (double)(lb_ticks() - first);
}

static inline void pair(size_t bytes, void *stream)
{
    word block;
    must(allocate(&block, bytes, stream), "cuMemAllocAsync");
    must(release(block, stream), "cuMemFreeAsync");
}

struct times {
    double half, most, mean;
};

/* Pairs of the sizes that `order` picks. */
static struct times timed(const size_t *asked, const unsigned short *order, long pairs, void *stream, double scale)
{
    static float singles[PAIR_SINGLES];
    for (int i = 0; i < 10000; i++)
        pair(asked[order[i]], stream);
    for (int i = 0; i < PAIR_SINGLES; i++) {
        size_t bytes = asked[order[i & 0xffff]];
        uint64_t before = lb_ticks();
        pair(bytes, stream);
        singles[i] = (float)((double)(lb_ticks() - before) * scale);
    }
    double begin = now_ns();
    for (long i = 0; i < pairs; i++)
        pair(asked[order[i & 0xffff]], stream);
    double mean = (now_ns() - begin) / (double)pairs;
    return (struct times){lb_percentile(singles, PAIR_SINGLES, 0.5), lb_percentile(singles, PAIR_SINGLES, 0.99), mean};
}

static void measure(int live, long pairs, void *stream, double scale)
{
    static word blocks[2 * MOST_LIVE];
    static size_t sizes[2 * MOST_LIVE], asked[SIZES];
    struct lb_random random = {(uint64_t)live};
    size_t spent = 0;
    double from = now_ns();
    for (int i = 0; i < 2 * live; i++) {
        sizes[i] = lb_size(&random, spent);
        spent += sizes[i];
        must(allocate(&blocks[i], sizes[i], stream), "cuMemAllocAsync");
    }
    /* One of each two neighbours goes, so that `live` stay. */
    int holes = 0;
    for (int i = 0; i < 2 * live; i += 2) {
        int gone = i + (lb_next(&random) & 1);
        must(release(blocks[gone], stream), "cuMemFreeAsync");
        asked[holes++ % SIZES] = sizes[gone];
        blocks[gone] = 0;
    }
    must(synchronize(), "cuCtxSynchronize");
    double filled = now_ns() - from;
    int kinds = holes < SIZES ? holes : SIZES;
    static unsigned short order[1 << 16];
    for (int i = 0; i < 1 << 16; i++)
        order[i] = (unsigned short)(lb_next(&random) % (unsigned)kinds);

    struct times mixed = timed(asked, order, pairs, stream, scale);
    /* The same size again and again, as loops do. */
    memset(order, 0, sizeof order);
    struct times same = timed(asked, order, pairs, stream, scale);
    void *pool = NULL;
    uint64_t reserved = 0;
    must(default_pool(&pool, 0), "cuDeviceGetDefaultMemPool");
    must(get_attribute(pool, RESERVED, &reserved), "cuMemPoolGetAttribute");
    printf("{\"live\": %d, \"bytes\": %zu, \"p50\": %.1f, \"p99\": %.1f, \"mean\": %.1f, \"same_p50\": %.1f, "
           "\"same_p99\": %.1f, \"same_mean\": %.1f, \"fill_ms\": %.1f, \"reserved\": %llu}\n",
           live, spent, mixed.half, mixed.most, mixed.mean, same.half, same.most, same.mean, filled / 1e6,
           (unsigned long long)reserved);
    fflush(stdout);
    for (int i = 0; i < 2 * live; i++)
        if (blocks[i])
            must(release(blocks[i], stream), "cuMemFreeAsync");
    must(synchronize(), "cuCtxSynchronize");
}

enum { MOST_THREADS = 64 };

struct worker {
    pthread_t id;
    long pairs;
    double means[3];
};

static pthread_barrier_t gate;

enum { DEEP = 12 };

/* The mean of the pairs of one size (0), of seven (1), or of twelve blocks at a time (2). */
static double mean_of(int kind, long pairs, void *stream)
{
    pthread_barrier_wait(&gate);
    double begin = now_ns();
    for (long i = 0; kind < 2 && i < pairs; i++)
        pair(kind ? (size_t)65536 << (i % 7) : 1 << 20, stream);
    for (long i = 0; kind == 2 && i < pairs; i += DEEP) {
        word blocks[DEEP];
        for (int j = 0; j < DEEP; j++)
            must(allocate(&blocks[j], 1 << 20, stream), "cuMemAllocAsync");
        for (int j = DEEP; j-- > 0;)
            must(release(blocks[j], stream), "cuMemFreeAsync");
    }
    double mean = (now_ns() - begin) / (double)pairs;
    pthread_barrier_wait(&gate);
    return mean;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    void *stream = NULL;
    must(set_current(the_context), "cuCtxSetCurrent");
    must(create_stream(&stream, 1), "cuStreamCreate");
    for (int kind = 0; kind < 3; kind++) {
        mean_of(kind, worker->pairs / 10, stream);
        worker->means[kind] = mean_of(kind, worker->pairs, stream);
    }
    return NULL;
}

static void crowd(int count, long pairs)
{
    static struct worker workers[MOST_THREADS];
    double means[3] = {0};
    pthread_barrier_init(&gate, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        workers[i].pairs = pairs;
        must(pthread_create(&workers[i].id, NULL, work, &workers[i]), "pthread_create");
    }
    for (int i = 0; i < count; i++) {
        pthread_join(workers[i].id, NULL);
        for (int kind = 0; kind < 3; kind++)
            means[kind] += workers[i].means[kind] / count;
    }
    pthread_barrier_destroy(&gate);
    printf("{\"threads\": %d, \"same_mean\": %.1f, \"mean\": %.1f, \"deep_mean\": %.1f}\n", count, means[0], means[1], means[2]);
}

int main(int argc, char **argv)
{
    long pairs = 1000000;
    int legacy = 0, most = MOST_LIVE, threads = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--legacy"))
            legacy = 1;
        else if (!strcmp(argv[i], "--pairs") && i + 1 < argc)
            pairs = atol(argv[++i]);
        else if (!strcmp(argv[i], "--most") && i + 1 < argc)
            most = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            threads = atoi(argv[++i]);
        else
            return 2;
    }
    if (threads < 0 || threads > MOST_THREADS)
        return 2;
    void *stream = start(legacy);
    if (threads > 0) {
        crowd(1, pairs);
        crowd(threads, pairs);
        return 0;
    }
    double scale = ns_per_tick();
    static const int lives[] = {1, 100, 1000, 10000};
    for (int i = 0; i < 4; i++)
        if (lives[i] <= most)
            measure(lives[i], pairs, stream, scale);
    return 0;
}

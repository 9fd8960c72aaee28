/* The price of one allocate+free pair, at three doors:
 *   driver   cuMemAlloc_v2/cuMemFree_v2 by dlsym from libcuda (build without RUNTIME)
 *   runtime  cudaMalloc/cudaFree (build with -DRUNTIME against a shared or a static cudart)
 * and in these cases:
 *   complete  256 cached blocks whose work a synchronise has proved finished, one pair on each
 *   mixed     the same over seven sizes
 *   ordered   one block, work queued on it before each free, so the next allocation must be ordered
 *   threads   `complete`, by several threads at once
 * Native and under the shim it is the same program. Prints one line of JSON; times in ns.
 * Batches of 32 pairs give the typical price without the clock's own; single pairs give the tail.
 * Needs no CUDA headers, so that it also builds on machines without a toolkit.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

typedef uintptr_t word;

#ifdef RUNTIME
extern int cudaMalloc(word *, size_t);
extern int cudaFree(word);
extern int cudaDeviceSynchronize(void);
extern int cudaMemsetAsync(word, int, size_t, void *);
extern int cudaStreamCreateWithFlags(void **, unsigned);
#define ALLOCATE cudaMalloc
#define FREE cudaFree
static int synchronize(void) { return cudaDeviceSynchronize(); }
static int fill(word block, size_t bytes, void *stream) { return cudaMemsetAsync(block, 1, bytes, stream); }
static int start_thread(void) { return cudaFree(0); }
static int start(void **stream) { return cudaFree(0) || cudaStreamCreateWithFlags(stream, 1); }
#else
static int (*ALLOCATE)(word *, size_t);
static int (*FREE)(word);
static int (*sync_context)(void), (*set_current)(void *);
static int (*memset_async)(word, unsigned char, size_t, void *);
static void *context;
static int synchronize(void) { return sync_context(); }
static int fill(word block, size_t bytes, void *stream) { return memset_async(block, 1, bytes, stream); }
static int start_thread(void) { return set_current(context); }

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "no %s in libcuda\n", name);
        exit(2);
    }
    return found;
}

static int start(void **stream)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    int (*init)(unsigned) = (int (*)(unsigned))symbol(library, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))symbol(library, "cuDevicePrimaryCtxRetain");
    int (*create)(void **, unsigned) = (int (*)(void **, unsigned))symbol(library, "cuStreamCreate");
    set_current = (int (*)(void *))symbol(library, "cuCtxSetCurrent");
    sync_context = (int (*)(void))symbol(library, "cuCtxSynchronize");
    memset_async = (int (*)(word, unsigned char, size_t, void *))symbol(library, "cuMemsetD8Async");
    ALLOCATE = (int (*)(word *, size_t))symbol(library, "cuMemAlloc_v2");
    FREE = (int (*)(word))symbol(library, "cuMemFree_v2");
    return init(0) || retain(&context, 0) || set_current(context) || create(stream, 1);
}
#endif

enum { BLOCKS = 256, BATCH = 32, SAMPLES = 1 << 20, MOST_THREADS = 64 };

static size_t block_bytes = 1 << 20;
static int mixed;
static double seconds = 1.0, ns_per_tick, clock_ns;
static unsigned long failures;

static size_t size_of(int index)
{
    return mixed ? (size_t)65536 << (index % 7) : block_bytes;
}

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static uint64_t ticks(void)
{
    unsigned aux;
    return __rdtscp(&aux);
}

static void calibrate(void)
{
    double from = now_ns();
    uint64_t first = ticks();
    while (now_ns() - from < 2e7)
        ;
    ns_per_tick = (now_ns() - from) / (double)(ticks() - first);
}

/* Counts a failed call; a call that succeeds pays no more than the test. */
static inline void must(int code)
{
    if (__builtin_expect(code != 0, 0))
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

static int fail(const char *what, int code)
{
    fprintf(stderr, "%s: %d\n", what, code);
    exit(1);
}

/* Samples in ns, kept up to a bound; percentiles by sorting. */
struct samples {
    float *ns;
    size_t count;
};

static void keep(struct samples *samples, double ns)
{
    if (!samples->ns && !(samples->ns = malloc(sizeof(float) * SAMPLES)))
        fail("malloc", 0);
    if (samples->count < SAMPLES)
        samples->ns[samples->count++] = (float)ns;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(struct samples *samples, double share)
{
    if (!samples->count)
        return 0;
    qsort(samples->ns, samples->count, sizeof(float), ascending);
    return samples->ns[(size_t)(share * (double)(samples->count - 1))];
}

/* What reading the clock costs, for itself. */
static double price_of_clock(void)
{
    struct samples clock = {0};
    for (int i = 0; i < 10000; i++) {
        uint64_t from = ticks();
        keep(&clock, (double)(ticks() - from) * ns_per_tick);
    }
    double price = percentile(&clock, 0.5);
    free(clock.ns);
    return price;
}

/* Makes `threads` * BLOCKS blocks free and known complete, without counting the time. */
static void refill(int threads)
{
    static word blocks[BLOCKS * MOST_THREADS];
    int code, all = BLOCKS * threads;
    for (int i = 0; i < all; i++)
        if ((code = ALLOCATE(&blocks[i], size_of(i))))
            fail("allocate", code);
    for (int i = 0; i < all; i++)
        if ((code = FREE(blocks[i])))
            fail("free", code);
    if ((code = synchronize()))
        fail("synchronize", code);
}

/* One pair on each of BLOCKS blocks: in batches, or one by one. Returns the ns spent. */
static double round_of_pairs(int single, struct samples *samples)
{
    uint64_t begin = ticks();
    if (single) {
        for (int i = 0; i < BLOCKS; i++) {
            word block;
            uint64_t from = ticks();
            must(ALLOCATE(&block, size_of(i)));
            must(FREE(block));
            keep(samples, (double)(ticks() - from) * ns_per_tick);
        }
    } else {
        for (int i = 0; i < BLOCKS; i += BATCH) {
            word block;
            uint64_t from = ticks();
            for (int j = i; j < i + BATCH; j++) {
                must(ALLOCATE(&block, size_of(j)));
                must(FREE(block));
            }
            keep(samples, (double)(ticks() - from) * ns_per_tick / BATCH);
        }
    }
    return (double)(ticks() - begin) * ns_per_tick;
}

struct result {
    struct samples batch, single;
};

static void complete(struct result *result)
{
    struct samples warm_up = {0};
    for (int i = 0; i < 3; i++) {
        refill(1);
        round_of_pairs(i & 1, &warm_up);
    }
    double spent = 0;
    for (int turn = 0; spent < seconds * 1e9; turn++) {
        synchronize();
        spent += round_of_pairs(turn & 1, turn & 1 ? &result->single : &result->batch);
    }
}

/* Work is queued on the block before each free; queueing it is outside the clock. */
static void ordered(struct result *result, void *stream)
{
    double spent = 0, batch = 0;
    for (int turn = 0; spent < seconds * 1e9; turn++) {
        word block;
        uint64_t a = ticks();
        must(ALLOCATE(&block, block_bytes));
        uint64_t b = ticks();
        must(fill(block, block_bytes, stream));
        uint64_t c = ticks();
        must(FREE(block));
        /* Each half is timed for itself, so the clock's own time is in twice. */
        double pair = (double)(b - a + ticks() - c) * ns_per_tick - 2 * clock_ns;
        spent += pair;
        if (turn < 1024) /* a multiple of BATCH: the first measured batch is a whole one */
            continue;
        batch += pair;
        keep(&result->single, pair);
        if (turn % BATCH == BATCH - 1) {
            keep(&result->batch, batch / BATCH);
            batch = 0;
        }
    }
    synchronize();
}

static pthread_barrier_t gate;
static int thread_count = 8, over;

struct worker {
    pthread_t id;
    int number;
    struct result result;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    int code = start_thread();
    if (code)
        fail("context in a thread", code);
    double spent = 0;
    for (int turn = 0;; turn++) {
        if (worker->number == 0) {
            if (turn < 3)
                refill(thread_count);
            else
                synchronize();
            over = spent > seconds * 1e9;
        }
        pthread_barrier_wait(&gate);
        if (over)
            return NULL;
        struct result warm_up = {0};
        struct result *result = turn < 3 ? &warm_up : &worker->result;
        spent += round_of_pairs(turn & 1, turn & 1 ? &result->single : &result->batch);
        pthread_barrier_wait(&gate);
        free(warm_up.batch.ns);
        free(warm_up.single.ns);
    }
}

static void threads(struct result *result)
{
    static struct worker workers[MOST_THREADS];
    pthread_barrier_init(&gate, NULL, thread_count);
    for (int i = 0; i < thread_count; i++) {
        workers[i].number = i;
        if (pthread_create(&workers[i].id, NULL, work, &workers[i]))
            fail("pthread_create", 0);
    }
    for (int i = 0; i < thread_count; i++) {
        pthread_join(workers[i].id, NULL);
        for (size_t j = 0; j < workers[i].result.batch.count; j++)
            keep(&result->batch, workers[i].result.batch.ns[j]);
        for (size_t j = 0; j < workers[i].result.single.count; j++)
            keep(&result->single, workers[i].result.single.ns[j]);
    }
}

int main(int argc, char **argv)
{
    const char *name = "complete";
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--case"))
            name = argv[i + 1];
        else if (!strcmp(argv[i], "--size"))
            block_bytes = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--threads"))
            thread_count = atoi(argv[i + 1]);
    }
    if (thread_count < 1 || thread_count > MOST_THREADS)
        return 2;
    void *stream = NULL;
    int code = start(&stream);
    if (code)
        fail("start", code);
    calibrate();
    clock_ns = price_of_clock();
    struct result result = {0};
    mixed = !strcmp(name, "mixed");
    if (!strcmp(name, "threads"))
        threads(&result);
    else if (!strcmp(name, "ordered"))
        ordered(&result, stream);
    else
        complete(&result);

    printf("{\"case\": \"%s\", \"bytes\": %zu, \"threads\": %d, \"samples\": %zu, \"failures\": %lu, "
           "\"pair_ns\": %.1f, \"single_p50_ns\": %.1f, \"single_p99_ns\": %.1f, \"clock_ns\": %.1f}\n",
           name, block_bytes, strcmp(name, "threads") ? 1 : thread_count, result.single.count, failures,
           percentile(&result.batch, 0.5), percentile(&result.single, 0.5),
           percentile(&result.single, 0.99), clock_ns);
    return failures != 0;
}

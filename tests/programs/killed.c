/* Allocates and frees on four threads until it dies, and keeps the truth in a file of its own that is written before
   and after each call. Arguments: how it ends (kill, segv, abort, _exit, oom, last), after how many microseconds.
   AFTER: this many allocations of one thread come first. LIMIT: no file may grow beyond this many bytes once the trace is
   there. TRUTH names the file: 4 threads × (8 words of sums, 256 × 4 words: state, address, bytes, unused). States: 0 free,
   1 being allocated, 2 live, 3 being freed. Sums: allocations, bytes, frees, bytes; all that have returned. */
#include "program.h"
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { THREADS = 4, SLOTS = 256 };
typedef struct { _Atomic uint64_t state, address, bytes, unused; } Slot;
typedef struct { _Atomic uint64_t allocations, allocated, frees, freed, unused[4]; Slot slots[SLOTS]; } Truth;

static Truth *truth;
static CUcontext context;
static _Atomic int stop;

static void add(_Atomic uint64_t *sum, uint64_t n) {
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + n, memory_order_release);
}

static void *worker(void *argument) {
    size_t number = (size_t)argument;
    Truth *mine = truth + number;
    unsigned random = 77u * (unsigned)number + (unsigned)getpid();
    OK(cuCtxSetCurrent(context));
    CUstream stream = number % 2 ? side_stream() : NULL;
    while (!atomic_load(&stop)) {
        random = random * 1103515245u + 12345u;
        Slot *slot = &mine->slots[(random >> 16) % SLOTS];
        uint64_t state = atomic_load(&slot->state);
        if (state == 0) {
            uint64_t bytes = 1 + (random >> 8) % (random & 64 ? 3000000u : 70000u);
            CUdeviceptr address = 0;
            atomic_store(&slot->bytes, bytes);
            atomic_store(&slot->state, 1);
            if (stream) OK(cuMemAllocAsync(&address, bytes, stream));
            else OK(cuMemAlloc_v2(&address, bytes));
            atomic_store(&slot->address, address);
            atomic_store(&slot->state, 2);
            add(&mine->allocations, 1), add(&mine->allocated, bytes);
        } else {
            atomic_store(&slot->state, 3);
            if (stream) OK(cuMemFreeAsync(atomic_load(&slot->address), stream));
            else OK(cuMemFree_v2(atomic_load(&slot->address)));
            atomic_store(&slot->state, 0);
            add(&mine->frees, 1), add(&mine->freed, atomic_load(&slot->bytes));
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    const char *end = argc > 1 ? argv[1] : "last";
    long us = argc > 2 ? atol(argv[2]) : 10000;
    pthread_t threads[THREADS];
    context = start();
    int file = open(getenv("TRUTH"), O_RDWR | O_CREAT, 0600);
    TRUE(file >= 0 && ftruncate(file, sizeof(Truth) * THREADS) == 0);
    truth = mmap(NULL, sizeof(Truth) * THREADS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    TRUE(truth != MAP_FAILED);
    for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, (void *)i);
    /* Only kill may come before anything has happened. And the stand-in driver has files, too: by now it has all. */
    for (int i = 0; i < THREADS && (strcmp(end, "kill") || getenv("LIMIT")); i++)
        while (!atomic_load(&truth[i].allocations)) sleep_ms(1);
    if (getenv("LIMIT")) {
        struct rlimit limit = {(rlim_t)atol(getenv("LIMIT")), RLIM_INFINITY};
        TRUE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    while (getenv("AFTER") && atomic_load(&truth->allocations) < strtoull(getenv("AFTER"), NULL, 10)) sleep_ms(1);
    usleep((useconds_t)us);
    if (!strcmp(end, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(end, "segv")) raise(SIGSEGV);
    if (!strcmp(end, "abort")) abort();
    if (!strcmp(end, "_exit")) _exit(7);
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    if (!strcmp(end, "oom")) {
        CUdeviceptr none = 0;
        CUresult result = cuMemAlloc_v2(&none, (size_t)1 << 44);
        printf("too much: %d\n", result);
        _exit(9);
    }
    printf("done\n");
    return 0;
}

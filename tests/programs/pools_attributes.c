/* Attributes of a pool: thresholds, what is used and reserved now and at most, trimming. How much is reserved at a time
   is the allocator's business: of that, relations only. Argument: the part. */
#include "streams.h"

static const unsigned long long nothing = 0;

/* What is used, exactly; what is reserved, in relation to it. */
static void tell(const char *when, CUmemoryPool pool) {
    unsigned long long reserved = attribute(pool, RESERVED_NOW), used = attribute(pool, USED_NOW);
    printf("%s: used %llu, at most %llu; reserved %s, at most %s\n", when, used, attribute(pool, USED_HIGH),
           reserved == 0 ? "none" : reserved >= used ? "enough" : "too little",
           attribute(pool, RESERVED_HIGH) == 0 ? "none" : attribute(pool, RESERVED_HIGH) >= reserved ? "as much" : "less");
}

static void set(CUmemoryPool pool, int which, const unsigned long long *value) { OK(cuMemPoolSetAttribute(pool, which, (void *)value)); }

static void settings(CUmemoryPool pool) {
    unsigned long long value = 77;
    int flag = 0;
    for (int which = 1; which <= 8; which++) {
        value = 0;
        printf("attribute %d: %d", which, cuMemPoolGetAttribute(pool, which, &value));
        printf(", %llu\n", value);
    }
    SAY("attribute 0", cuMemPoolGetAttribute(pool, 0, &value));
    SAY("attribute 99", cuMemPoolGetAttribute(pool, 99, &value));
    SAY("of no pool", cuMemPoolGetAttribute(NULL, RELEASE_THRESHOLD, &value));
    SAY("nowhere", cuMemPoolGetAttribute(pool, RELEASE_THRESHOLD, NULL));
    SAY("set of no pool", cuMemPoolSetAttribute(NULL, RELEASE_THRESHOLD, &value));
    SAY("set from nowhere", cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, NULL));
    SAY("set 99", cuMemPoolSetAttribute(pool, 99, &value));
    for (int i = 0; i < 4; i++) {
        unsigned long long threshold[] = {1, 48 * MIB, keep_all, 0};
        set(pool, RELEASE_THRESHOLD, &threshold[i]);
        SAY("threshold is as set", attribute(pool, RELEASE_THRESHOLD) == threshold[i]);
    }
    /* The three that say how memory is reused are int. */
    for (int which = 1; which <= 3; which++)
        for (flag = 0; flag < 2; flag++) {
            int got[2] = {77, 77};
            SAY("set reuse", cuMemPoolSetAttribute(pool, which, &flag));
            SAY("get reuse", cuMemPoolGetAttribute(pool, which, got));
            printf("  %d, beside it %d\n", got[0], got[1]);
        }
    /* Marks can only be reset. */
    for (int which = RESERVED_NOW; which <= USED_HIGH; which++)
        for (value = 0; value < 2; value++) printf("set %d to %llu: %d\n", which, value, cuMemPoolSetAttribute(pool, which, &value));
}

static void counts(CUmemoryPool pool) {
    CUstream side = side_stream();
    CUdeviceptr block[4] = {0};
    set(pool, RELEASE_THRESHOLD, &keep_all);
    tell("at first", pool);
    OK(cuMemAllocFromPoolAsync(&block[0], 100 * MIB + 1, pool, side));
    tell("100 MiB and 1", pool);
    OK(cuMemAllocFromPoolAsync(&block[1], 1, pool, side));
    tell("and 1", pool);
    OK(cuMemAllocFromPoolAsync(&block[2], 513, pool, side));
    OK(cuMemAllocFromPoolAsync(&block[3], 3 * MIB, pool, side));
    tell("and 513 and 3 MiB", pool);
    OK(cuMemFreeAsync(block[0], side));
    tell("freed the first", pool);
    OK(cuMemFreeAsync(block[3], side));
    set(pool, USED_HIGH, &nothing);
    tell("reset used", pool);
    set(pool, RESERVED_HIGH, &nothing);
    tell("reset reserved", pool);
    SAY("reserved at most is reserved", attribute(pool, RESERVED_HIGH) == attribute(pool, RESERVED_NOW));
    OK(cuMemFreeAsync(block[1], side));
    OK(cuStreamSynchronize(side));
    OK(cuMemFree_v2(block[2]));
    tell("freed all", pool);
    OK(cuMemAllocFromPoolAsync(&block[0], 2 * MIB, pool, side));
    OK(cuMemFreeAsync(block[0], side));
    tell("once more", pool);
    SAY("kept", attribute(pool, RESERVED_NOW) > 0);
    OK(cuStreamSynchronize(side));
    OK(cuMemPoolTrimTo(pool, 0));
    tell("trimmed", pool);
    set(pool, USED_HIGH, &nothing);
    set(pool, RESERVED_HIGH, &nothing);
    tell("reset", pool);
}

/* What is kept when all is freed: up to the threshold when the host waits, down to what is asked for when trimmed. */
static void kept(CUmemoryPool pool) {
    static const struct { const char *name; unsigned long long threshold; } all[] = {
        {"threshold 0", 0}, {"threshold 48 MiB", 48 * MIB}, {"threshold max", ~0ull}};
    CUstream side = side_stream();
    size_t before = free_memory();
    for (int i = 0; i < 3; i++)
        for (int how = 0; how < 3; how++) {
            CUdeviceptr block[4] = {0};
            CUevent event = NULL;
            OK(cuEventCreate(&event, 2));
            OK(cuMemPoolTrimTo(pool, 0));
            set(pool, RELEASE_THRESHOLD, &all[i].threshold);
            for (int k = 0; k < 4; k++) {
                OK(cuMemAllocFromPoolAsync(&block[k], 32 * MIB, pool, side));
                OK(touch(side, block[k], 32 * MIB, 1, 500000));
            }
            printf("%s: taken %d", all[i].name, before - free_memory() >= 128 * MIB);
            for (int k = 0; k < 4; k++) OK(cuMemFreeAsync(block[k], side));
            OK(cuEventRecord(event, side));
            /* The stream has not come to the frees. */
            printf(", after the frees %d", attribute(pool, RESERVED_NOW) >= 128 * MIB);
            if (how == 0) OK(cuStreamSynchronize(side));
            if (how == 1) OK(cuEventSynchronize(event));
            if (how == 2) OK(cuCtxSynchronize());
            unsigned long long reserved = attribute(pool, RESERVED_NOW);
            printf(", after waiting for the %s: %s, memory %s\n", how == 0 ? "stream" : how == 1 ? "event" : "context",
                   reserved == 0 ? "none" : reserved <= all[i].threshold ? "no more than the threshold" : "more",
                   reserved + free_memory() == before ? "accounted for" : "missing");
            OK(cuEventDestroy_v2(event));
        }
    SAY("kept all", attribute(pool, RESERVED_NOW) >= 128 * MIB);
    for (size_t keep = 128 * MIB; keep > 0; keep /= 2) {
        OK(cuMemPoolTrimTo(pool, keep));
        printf("trimmed to %zu: no more %d, memory accounted for %d\n", keep, attribute(pool, RESERVED_NOW) <= keep,
               attribute(pool, RESERVED_NOW) + free_memory() == before);
    }
    OK(cuMemPoolTrimTo(pool, 0));
    SAY("reserved", attribute(pool, RESERVED_NOW));
    SAY("memory as before", free_memory() == before);
    SAY("trim no pool", cuMemPoolTrimTo(NULL, 0));
}

/* Trimming takes nothing from live blocks, nor from what the device may still use. */
static void trims(CUmemoryPool pool) {
    CUstream side = side_stream(), other = side_stream();
    set(pool, RELEASE_THRESHOLD, &keep_all);
    for (int round = 0; round < 20; round++) {
        CUdeviceptr live = 0, freed = 0;
        unsigned char byte = 0;
        OK(cuMemAllocFromPoolAsync(&freed, 40 * MIB, pool, side));
        OK(cuMemAllocFromPoolAsync(&live, 10 * MIB, pool, other));
        OK(touch(side, freed, 40 * MIB, 1, 300000));
        OK(touch(other, live, 10 * MIB, 1, 1000));
        OK(cuMemsetD8Async(live + 10 * MIB - 1, (unsigned char)(round + 1), 1, other));
        OK(cuMemFreeAsync(freed, side));
        OK(cuMemPoolTrimTo(pool, 0));
        SAY("work in flight", attribute(pool, RESERVED_NOW) >= 10 * MIB);
        OK(cuStreamSynchronize(side));
        OK(cuMemPoolTrimTo(pool, 0));
        SAY("enough for the live", attribute(pool, RESERVED_NOW) >= 10 * MIB);
        SAY("no more than it needs", attribute(pool, RESERVED_NOW) < 50 * MIB);
        OK(touch(other, live, 10 * MIB, 0, 1000));
        OK(cuMemcpyDtoHAsync_v2(&byte, live + 10 * MIB - 1, 1, other));
        OK(cuMemFreeAsync(live, other));
        OK(cuStreamSynchronize(other));
        TRUE(byte == round + 1);
    }
    OK(cuMemPoolTrimTo(pool, 0));
    SAY("reserved", attribute(pool, RESERVED_NOW));
}

/* Memory of this pool beside memory that is not of a pool; ends with all of it live. */
static void beside(CUmemoryPool pool) {
    CUdeviceptr block = 0;
    OK(cuMemAlloc_v2(&block, 30 * MIB));
    OK(cuMemAllocFromPoolAsync(&block, 5 * MIB, pool, 0));
    OK(cuMemAllocFromPoolAsync(&block, 70 * MIB, pool, 0));
    OK(cuMemFreeAsync(block, 0));
    OK(cuStreamSynchronize(0));
    OK(cuMemPoolTrimTo(pool, 6 * MIB));
    printf("# reserved %llu\n", attribute(pool, RESERVED_NOW));
}

/* What CuPy's tests of its asynchronous pool ask (test_free_bytes2, test_total_bytes2, test_total_bytes_stream): small
   requests change what is used, and what is reserved only when all is trimmed. */
enum { UNIT = 512 };

static CUdeviceptr take(CUmemoryPool pool, size_t units, CUstream stream) {
    CUdeviceptr block = 0;
    OK(cuMemAllocFromPoolAsync(&block, units * UNIT, pool, stream));
    return block;
}

static unsigned long long unused(CUmemoryPool pool) { return attribute(pool, RESERVED_NOW) - attribute(pool, USED_NOW); }

static unsigned long long trimmed(CUmemoryPool pool, CUstream stream) {
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 0));
    return attribute(pool, RESERVED_NOW);
}

static void small_beside(CUmemoryPool pool, const char *what) {
    CUstream side = side_stream(), other = side_stream();
    unsigned long long least = trimmed(pool, side);
    CUdeviceptr first = take(pool, 2, side);
    unsigned long long reserved = attribute(pool, RESERVED_NOW), left = unused(pool);
    CUdeviceptr second = take(pool, 4, side);
    int fewer = unused(pool) == left - 4 * UNIT;
    OK(cuMemFreeAsync(second, side));
    int as_before = unused(pool) == left;
    OK(cuMemFreeAsync(first, side));
    int more = unused(pool) == left + 2 * UNIT;
    CUdeviceptr third = take(pool, 1, side);
    int fewer_again = unused(pool) == left + UNIT;
    OK(cuMemFreeAsync(third, side));
    printf("%s: unused %d %d %d %d, reserved as before %d", what, fewer, as_before, more, fewer_again, attribute(pool, RESERVED_NOW) == reserved);
    printf(", trimmed %d", trimmed(pool, side) == least);
    first = take(pool, 1, side);
    printf(", again %d", attribute(pool, RESERVED_NOW) == reserved);
    OK(cuMemFreeAsync(first, side));
    printf(", trimmed %d", trimmed(pool, side) == least);
    first = take(pool, 2, other);
    printf(", on another stream %d", attribute(pool, RESERVED_NOW) == reserved);
    OK(cuMemFreeAsync(first, other));
    printf(", trimmed %d\n", trimmed(pool, other) == least);
}

static void small(CUmemoryPool pool) {
    CUstream side = side_stream();
    CUdeviceptr plain = 0, large = 0;
    set(pool, RELEASE_THRESHOLD, &keep_all);
    small_beside(pool, "alone");
    OK(cuMemAlloc_v2(&plain, 4096));
    small_beside(pool, "beside cudaMalloc");
    OK(cuMemAlloc_v2(&large, 3 * MIB));
    OK(cuMemFree_v2(plain));
    small_beside(pool, "beside a free");
    CUdeviceptr ordered = take(pool, 3, side);
    OK(cuMemFree_v2(large));
    small_beside(pool, "beside the other stream's");
    OK(cuMemFreeAsync(ordered, side));
    printf("nothing: %llu\n", trimmed(pool, side));
}

/* Both families at random in several threads. Between rounds all figures must fit each other. */
enum { THREADS = 4, ROUNDS = 150, KEPT = 12 };
typedef struct { CUdeviceptr block; size_t bytes; int ordered; } Kept;
typedef struct { Kept kept[KEPT]; int count; uint64_t state; CUstream stream; } Asking;

static CUmemoryPool tested;
static CUcontext shared_context;
static Asking asking[THREADS];
static pthread_barrier_t rounds;
static size_t before_all;
static int threads;

static void act(Asking *self) {
    int what = (int)(next(&self->state) % 100);
    if (what < 60 && self->count < KEPT) {
        size_t bytes = 1 + next(&self->state) % (next(&self->state) % 3 ? 5000 : 5 * MIB);
        Kept *kept = &self->kept[self->count++];
        *kept = (Kept){0, bytes, next(&self->state) % 2};
        OK(kept->ordered ? cuMemAllocFromPoolAsync(&kept->block, bytes, tested, self->stream) : cuMemAlloc_v2(&kept->block, bytes));
    } else if (what < 95 && self->count > 0) {
        int at = (int)(next(&self->state) % self->count);
        OK(self->kept[at].ordered ? cuMemFreeAsync(self->kept[at].block, self->stream) : cuMemFree_v2(self->kept[at].block));
        self->kept[at] = self->kept[--self->count];
    } else if (what < 98) OK(cuStreamSynchronize(self->stream));
    else OK(cuMemPoolTrimTo(tested, next(&self->state) % (4 * MIB)));
}

static void fits(int round) {
    unsigned long long used = 0, plain = 0, reserved = attribute(tested, RESERVED_NOW), most = attribute(tested, RESERVED_HIGH);
    for (int i = 0; i < threads; i++)
        for (int k = 0; k < asking[i].count; k++) *(asking[i].kept[k].ordered ? &used : &plain) += asking[i].kept[k].bytes;
    TRUE(attribute(tested, USED_NOW) == used);
    TRUE(attribute(tested, USED_HIGH) >= used);
    TRUE(reserved >= used);
    TRUE(most >= reserved);
    TRUE(most >= attribute(tested, USED_HIGH));
    /* A page may be of both families. */
    TRUE(reserved + plain <= before_all - free_memory() + 2 * MIB);
    if (round % 10 == 9) {
        set(tested, USED_HIGH, &nothing);
        set(tested, RESERVED_HIGH, &nothing);
        TRUE(attribute(tested, USED_HIGH) == used);
        TRUE(attribute(tested, RESERVED_HIGH) == attribute(tested, RESERVED_NOW));
    }
}

static void *asks(void *number) {
    Asking *self = &asking[(long)number];
    OK(cuCtxSetCurrent(shared_context));
    self->stream = side_stream();
    self->state = (uint64_t)(long)number * 7919 + 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < (threads > 1 ? 20 : 1); i++) act(self);
        pthread_barrier_wait(&rounds);
        if (self == asking) fits(round);
        pthread_barrier_wait(&rounds);
    }
    while (self->count > 0) {
        Kept *kept = &self->kept[--self->count];
        OK(kept->ordered ? cuMemFreeAsync(kept->block, self->stream) : cuMemFree_v2(kept->block));
    }
    OK(cuStreamSynchronize(self->stream));
    return NULL;
}

static void at_random(CUmemoryPool pool, CUcontext context) {
    tested = pool;
    shared_context = context;
    before_all = free_memory();
    for (int pass = 0; pass < 4; pass++) {
        static const unsigned long long thresholds[] = {0, 3 * MIB, ~0ull, ~0ull};
        pthread_t thread[THREADS];
        threads = pass % 2 ? THREADS : 1;
        set(pool, RELEASE_THRESHOLD, &thresholds[pass]);
        OK(pthread_barrier_init(&rounds, NULL, (unsigned)threads));
        for (long i = 0; i < threads; i++) TRUE(!pthread_create(&thread[i], NULL, asks, (void *)i));
        for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
        printf("threshold %llu: used %llu, reserved enough %d\n", thresholds[pass], attribute(pool, USED_NOW), attribute(pool, RESERVED_NOW) <= thresholds[pass]);
        OK(cuCtxSynchronize());
        OK(cuMemPoolTrimTo(pool, 0));
        printf("trimmed: reserved %llu\n", attribute(pool, RESERVED_NOW));
    }
}

int main(int argc, char **argv) {
    TRUE(argc == 3);
    CUcontext context = start_streams();
    CUmemoryPool pool = !strcmp(argv[2], "default") ? default_pool(0) : new_pool(0, 0);
    if (!strcmp(argv[1], "settings")) settings(pool);
    if (!strcmp(argv[1], "counts")) counts(pool);
    if (!strcmp(argv[1], "kept")) kept(pool);
    if (!strcmp(argv[1], "trims")) trims(pool);
    if (!strcmp(argv[1], "beside")) beside(pool);
    if (!strcmp(argv[1], "small")) small(pool);
    if (!strcmp(argv[1], "random")) at_random(pool, context);
    return 0;
}

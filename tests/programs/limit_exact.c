/* Under GPUSHIM_LIMIT the driver never gives more, and all of it can be had. The driver's own count says what it gave.
   Arguments: the part, and the limit in MiB. */
#include "streams.h"

enum { THREADS = 8, STEPS = 2000, KEPT = 24, KINDS = 8, EXPORTABLE = 1 };
typedef struct { CUdeviceptr block; CUhandle memory; size_t bytes; int kind; } Piece;

static CUcontext contexts[2];
static size_t before[2], most[2], limit;

/* What the driver gave of the current device, in bytes. */
static size_t given(int device) {
    size_t left = driver_free();
    return left < before[device] ? before[device] - left : 0;
}

/* Notes what the driver gave of the current device. */
static void look(int device) {
    size_t now = given(device), known = __atomic_load_n(&most[device], __ATOMIC_SEQ_CST);
    while (now > known && !__atomic_compare_exchange_n(&most[device], &known, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
}

static CUmemoryPool pool_of(int device, int handles) {
    PoolProps props = {.type = 1, .handles = handles, .location = {1, device}};
    CUmemoryPool pool = NULL;
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

/* Physical memory at an address, its handle given back: the mapping keeps it. */
static CUresult mapped(int device, size_t bytes, Piece *piece) {
    AllocationProp on_device = {.type = 1, .location = {1, device}};
    piece->bytes = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    CUresult result = cuMemCreate(&piece->memory, piece->bytes, &on_device, 0);
    if (result != SUCCESS) return result;
    OK(cuMemAddressReserve(&piece->block, piece->bytes, 0, 0, 0));
    OK(cuMemMap(piece->block, piece->bytes, 0, piece->memory, 0));
    OK(cuMemRelease(piece->memory));
    return SUCCESS;
}

static CUresult take(int device, int kind, size_t bytes, CUmemoryPool own, CUmemoryPool exportable, CUstream stream, Piece *piece) {
    size_t pitch = 0;
    ArrayDescriptor flat = {bytes / 4 / 512 + 1, 512, 0x20, 1};
    Array3DDescriptor levels = {.width = bytes / 8 / 4 % 131072 + 1, .format = 0x20, .channels = 1};
    *piece = (Piece){.kind = kind};
    switch (kind) {
    case 0: return cuMemAlloc_v2(&piece->block, bytes);
    case 1: return cuMemAllocAsync(&piece->block, bytes, stream);
    case 2: return cuMemAllocFromPoolAsync(&piece->block, bytes, own, stream);
    case 3: return cuMemAllocFromPoolAsync(&piece->block, bytes, exportable, stream);
    case 4: return cuMemAllocPitch_v2(&piece->block, &pitch, bytes / 64 + 1, 64, 4);
    case 5: return cuArrayCreate_v2((CUarray *)&piece->block, &flat);
    case 6: return cuMipmappedArrayCreate((CUmipmappedArray *)&piece->block, &levels, 8);
    default: return mapped(device, bytes, piece);
    }
}

static void give(const Piece *piece, CUstream stream, int ordered) {
    if (piece->kind == 5) OK(cuArrayDestroy((CUarray)piece->block));
    else if (piece->kind == 6) OK(cuMipmappedArrayDestroy((CUmipmappedArray)piece->block));
    else if (piece->kind == 7) {
        OK(cuMemUnmap(piece->block, piece->bytes));
        OK(cuMemAddressFree(piece->block, piece->bytes));
    } else if (ordered) OK(cuMemFreeAsync(piece->block, stream));
    else {
        OK(cuStreamSynchronize(stream));
        OK(cuMemFree_v2(piece->block));
    }
}

static void *asks(void *number) {
    long self = (long)number;
    int device = self % 2, count = 0;
    uint64_t state = (uint64_t)self * 31337 + 1;
    Piece pieces[KEPT];
    OK(cuCtxSetCurrent(contexts[device]));
    CUstream stream = side_stream();
    CUmemoryPool own = pool_of(device, 0), exportable = pool_of(device, EXPORTABLE);
    for (int step = 0; step < STEPS; step++) {
        if (next(&state) % 100 < 55 && count < KEPT) {
            size_t bytes = 1 + next(&state) % (next(&state) % 4 ? 3 * MIB : 40 * MIB);
            CUresult result = take(device, (int)(next(&state) % KINDS), bytes, own, exportable, stream, &pieces[count]);
            TRUE(result == SUCCESS || result == OUT_OF_MEMORY);
            count += result == SUCCESS;
            look(device);
        } else if (count > 0) {
            int at = (int)(next(&state) % count);
            give(&pieces[at], stream, next(&state) % 3 > 0);
            pieces[at] = pieces[--count];
        }
    }
    while (count > 0) give(&pieces[--count], stream, 1);
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(own));
    OK(cuMemPoolDestroy(exportable));
    return NULL;
}

/* How much of the limit can be had of one kind, in per cent. */
static void all_of(int device, int kind, const char *name) {
    static Piece pieces[4096];
    CUstream stream = side_stream();
    int count = 0;
    while (count < 4096 && take(device, kind, 4 * MIB - 64 * 4096, NULL, NULL, stream, &pieces[count]) == SUCCESS) count++;
    printf("device %d, %s: %llu %% of the limit, the driver gave no more: %d\n", device, name, count * 4 * MIB * 100 / limit, given(device) <= limit);
    while (count > 0) give(&pieces[--count], stream, 0);
    OK(cuStreamDestroy_v2(stream));
}

static void threads(void) {
    pthread_t thread[THREADS];
    for (long i = 0; i < THREADS; i++) TRUE(!pthread_create(&thread[i], NULL, asks, (void *)i));
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(contexts[i]));
        printf("device %d, threads: most of the limit: %d, no more than it: %d\n", i, most[i] * 10 > limit * 9, most[i] <= limit);
        printf("# most%d %zu\n", i, most[i]);
        all_of(i, 0, "blocks");
        all_of(i, 4, "pitched");
        all_of(i, 5, "arrays");
        all_of(i, 7, "mapped");
    }
}

static CUresult pitched(size_t mib, CUdeviceptr *block) {
    size_t pitch = 0;
    return cuMemAllocPitch_v2(block, &pitch, MIB, mib, 4);
}

/* Small blocks share granules, each of which is there for as long as one of its blocks: of a limit of 64 MiB. */
static void small(void) {
    CUdeviceptr most_of_it = 0, block[2048], large = 0;
    size_t pitch = 0;
    OK(pitched(60, &most_of_it));
    int count = 0;
    while (count < 2048 && cuMemAllocPitch_v2(&block[count], &pitch, 700, 1, 4) == SUCCESS) count++;
    printf("small blocks of 1 KiB: %d; the driver gave %llu MiB\n", count, given(0) / MIB);
    for (int i = 0; i < count - 1; i++) OK(cuMemFree_v2(block[i]));
    printf("beside the last: %d", pitched(4, &large));
    OK(cuMemFree_v2(block[count - 1]));
    printf("; without: %d\n", pitched(4, &large));
}

/* Physical memory is there until its last handle and its last mapping are gone. */
static void physical(void) {
    AllocationProp on_device = {.type = 1, .location = {1, 0}};
    CUhandle memory = 0, again = 0, other = 0;
    CUdeviceptr block = 0;
    OK(cuMemCreate(&memory, 40 * MIB, &on_device, 0));
    OK(cuMemAddressReserve(&block, 40 * MIB, 0, 0, 0));
    OK(cuMemMap(block, 40 * MIB, 0, memory, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)block));
    OK(cuMemRelease(memory));
    printf("beside a mapping and a handle: %d", cuMemCreate(&other, 40 * MIB, &on_device, 0));
    OK(cuMemUnmap(block, 40 * MIB));
    printf("; a handle: %d", cuMemCreate(&other, 40 * MIB, &on_device, 0));
    OK(cuMemMap(block, 40 * MIB, 0, again, 0));
    OK(cuMemRelease(again));
    printf("; a mapping: %d", cuMemCreate(&other, 40 * MIB, &on_device, 0));
    OK(cuMemUnmap(block, 40 * MIB));
    printf("; nothing: %d\n", cuMemCreate(&other, 40 * MIB, &on_device, 0));
}

/* Memory that is freed on a stream is there until the stream has come to it; what is in a context goes with it. */
static void later(void) {
    CUdeviceptr block = 0;
    CUcontext other = NULL;
    CUstream stream = side_stream();
    for (int round = 0; round < 5; round++) {
        OK(pitched(40, &block));
        OK(touch(stream, block, 40 * MIB, 1, 3000000));
        OK(cuMemFreeAsync(block, stream));
        printf("behind work: %d", pitched(40, &block));
        printf("; the driver gave no more: %d\n", given(0) <= limit);
        OK(cuMemFree_v2(block));
    }
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(pitched(40, &block));
    OK(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(contexts[0]));
    printf("after the context: %d\n", pitched(60, &block));
}

/* Levels of an array have half the edges each: 56, 7 and 0.875 MiB. */
static void levels(void) {
    Array3DDescriptor solid = {.width = 128, .height = 128, .depth = 224, .format = 0x20, .channels = 4};
    CUmipmappedArray first = NULL, second = NULL;
    printf("levels: %d", cuMipmappedArrayCreate(&first, &solid, 3));
    printf("; the driver gave %llu MiB; two: %d\n", given(0) / MIB, cuMipmappedArrayCreate(&second, &solid, 3));
}

static size_t free_here(void) {
    size_t left = 0, total = 0;
    OK(cuMemGetInfo_v2(&left, &total));
    return left;
}

/* A destroyed pool has the memory of its blocks until they are freed, of a limit of 160 MiB. The question for free memory
   disturbs no capture. */
static void pools(void) {
    CUdeviceptr block = 0, small = 0, other = 0;
    CUstream stream = side_stream();
    CUgraph graph = NULL;
    size_t first = free_here();
    for (int asks = 0; asks < 2; asks++) {
        CUmemoryPool own = pool_of(0, 0);
        OK(cuMemAllocFromPoolAsync(&block, 100 * MIB, own, stream));
        OK(cuMemAllocFromPoolAsync(&small, 1000, own, stream));
        OK(cuMemPoolDestroy(own));
        if (asks) printf("beside blocks of a destroyed pool: %d; ", pitched(80, &other));
        OK(cuMemFreeAsync(block, stream));
        OK(cuStreamSynchronize(stream));
        if (asks) {
            printf("a small one: %d; ", pitched(80, &other));
            OK(cuMemFree_v2(other));
        }
        OK(cuMemFreeAsync(small, stream));
        OK(cuStreamSynchronize(stream));
        printf("all is free again: %d\n", free_here() == first);
    }
    OK(cuMemAllocAsync(&block, MIB, stream));
    OK(cuStreamBeginCapture_v2(stream, 1));
    free_here();
    OK(cuMemAllocAsync(&other, MIB, stream));
    printf("a capture: %d\n", cuStreamEndCapture(stream, &graph));
}

int main(int argc, char **argv) {
    TRUE(argc == 3);
    limit = (size_t)atoi(argv[2]) * MIB;
    start_streams();
    for (int i = 1; i >= 0; i--) {
        OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
        OK(cuCtxSetCurrent(contexts[i]));
        before[i] = driver_free();
    }
    if (!strcmp(argv[1], "threads")) threads();
    if (!strcmp(argv[1], "small")) small();
    if (!strcmp(argv[1], "physical")) physical();
    if (!strcmp(argv[1], "later")) later();
    if (!strcmp(argv[1], "levels")) levels();
    if (!strcmp(argv[1], "pools")) pools();
    return 0;
}

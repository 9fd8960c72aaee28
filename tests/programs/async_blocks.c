/* Blocks of stream-ordered memory: sizes, what the driver tells about an address, and the ways to free one, right and
   wrong. Argument: the part. */
#include "streams.h"

/* Attributes of an address, numbered as CUpointer_attribute; what drivers number in their own way is not printed. */
static void about(const char *what, CUdeviceptr base, CUdeviceptr address, CUmemoryPool pool) {
    static const struct { const char *name; int number, bytes; } known[] = {
        {"context", 1, 8}, {"memory type", 2, 4}, {"device pointer", 3, 8}, {"host pointer", 4, 8}, {"managed", 8, 4}, {"device", 9, 4},
        {"legacy IPC", 10, 4}, {"start", 11, 8}, {"size", 12, 8}, {"mapped", 13, 4}, {"handle types", 14, 8}, {"access", 16, 4}, {"pool", 17, 8}};
    enum { KNOWN = sizeof known / sizeof *known };
    unsigned long long all[KNOWN], id = 0;
    int numbers[KNOWN];
    void *to[KNOWN];
    CUdeviceptr start = 0;
    size_t bytes = 0;
    for (int i = 0; i < KNOWN; i++) {
        unsigned long long value = 0;
        CUresult result = cuPointerGetAttribute(&value, known[i].number, address);
        printf("%s: %s: %d", what, known[i].name, result);
        if (known[i].number == 17) printf(", %s\n", value == (uintptr_t)pool ? "its pool" : value ? "another pool" : "none");
        else if (value && known[i].bytes == 8 && known[i].number != 12) printf(", base + %lld\n", (long long)(value - base));
        else printf(", %lld\n", (long long)value);
        numbers[i] = known[i].number, to[i] = &all[i], all[i] = 0;
    }
    CUresult result = cuPointerGetAttribute(&id, 7, address);
    printf("%s: number: %d, %s\n", what, result, id ? "some" : "none");
    printf("%s: all at once: %d", what, cuPointerGetAttributes(KNOWN, numbers, to, address));
    for (int i = 0; i < KNOWN; i++) {
        unsigned long long value = 0;
        if (!cuPointerGetAttribute(&value, known[i].number, address) && value != all[i]) printf(", another %s", known[i].name);
    }
    printf("\n%s: range: %d", what, cuMemGetAddressRange_v2(&start, &bytes, address));
    if (start) printf(", base + %lld, %zu bytes", (long long)(start - base), bytes);
    printf("\n");
}

static void pointers(void) {
    CUstream side = side_stream();
    CUmemoryPool own = new_pool(0, 0);
    CUdeviceptr block[3] = {0};
    unsigned long long id[2] = {0};
    OK(cuMemAllocAsync(&block[0], 1000, side));
    OK(cuMemAllocFromPoolAsync(&block[1], 5 * MIB + 1, own, side));
    OK(cuMemAllocAsync(&block[2], 1000, side));
    /* What is told does not wait for the allocation to be reached. */
    about("small", block[0], block[0], default_pool(0));
    about("inside", block[0], block[0] + 999, default_pool(0));
    about("large", block[1], block[1], own);
    about("inside the large", block[1], block[1] + 5 * MIB, own);
    for (int i = 0; i < 2; i++) OK(cuPointerGetAttribute(&id[i], 7, block[2 * i]));
    printf("numbers differ: %d\n", id[0] != id[1]);
    for (int i = 0; i < 3; i++) OK(cuMemFreeAsync(block[i], side));
    /* Freed is freed at the call. */
    about("freed", block[0], block[0], default_pool(0));
    about("freed, inside the large", block[1], block[1] + 4096, own);
    OK(cuStreamSynchronize(side));
    OK(cuMemPoolDestroy(own));
}

/* Other processes cannot have it. */
static void ipc(void) {
    CUstream side = side_stream();
    CUdeviceptr block = 0;
    IpcHandle handle;
    OK(cuMemAllocAsync(&block, 5 * MIB, side));
    SAY("IPC handle", cuIpcGetMemHandle(&handle, block));
    SAY("IPC handle, inside", cuIpcGetMemHandle(&handle, block + 4096));
    OK(cuMemFreeAsync(block, side));
    OK(cuStreamSynchronize(side));
}

static void sizes(void) {
    CUstream side = side_stream();
    CUdeviceptr block[16], p = 77;
    size_t total = 0;
    static const size_t some[] = {1, 2, 255, 511, 512, 513, 4096, 100001, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 33 * MIB};
    enum { SOME = sizeof some / sizeof *some };
    OK(cuDeviceTotalMem_v2(&total, 0));
    printf("no bytes: %d", cuMemAllocAsync(&p, 0, side));
    printf(", %s\n", p == 77 ? "as it was" : p ? "an address" : "null");
    size_t beyond[] = {total + 1, (size_t)1 << 44, ~(size_t)0 - 511, ~(size_t)0};
    for (int i = 0; i < 4; i++) {
        p = 77;
        printf("too many bytes: %d", cuMemAllocAsync(&p, beyond[i], side));
        printf(", %s\n", p == 77 ? "as it was" : p ? "an address" : "null");
    }
    SAY("nowhere", cuMemAllocAsync(NULL, 16, side));
    for (int i = 0; i < SOME; i++) {
        unsigned char first = 0, last = 0;
        OK(cuMemAllocAsync(&block[i], some[i], side));
        OK(touch(side, block[i], some[i], 1, 1000));
        OK(cuMemsetD8Async(block[i], (unsigned char)(2 * i), 1, side));
        OK(cuMemsetD8Async(block[i] + some[i] - 1, (unsigned char)(2 * i + 1), 1, side));
        for (int k = 0; k < i; k++) TRUE(block[k] + some[k] <= block[i] || block[i] + some[i] <= block[k]);
        OK(cuMemcpyDtoHAsync_v2(&first, block[i], 1, side));
        OK(cuMemcpyDtoHAsync_v2(&last, block[i] + some[i] - 1, 1, side));
        OK(cuStreamSynchronize(side));
        printf("%zu bytes: aligned %d, first %d, last %d\n", some[i], block[i] % 512 == 0, first, last);
    }
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
    for (int i = 0; i < SOME; i++) OK(cuMemFreeAsync(block[i], side));
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
    OK(cuStreamSynchronize(side));
}

static void frees(void) {
    CUstream side = side_stream();
    CUdeviceptr p = 0, q = 0;
    SAY("null", cuMemFreeAsync(0, side));
    SAY("unknown", cuMemFreeAsync(4096, side));
    SAY("unknown", cuMemFreeAsync(0x123456789000, side));
    OK(cuMemAllocAsync(&p, 100000, side));
    SAY("inside", cuMemFreeAsync(p + 512, side));
    SAY("inside", cuMemFreeAsync(p + 1, side));
    SAY("once", cuMemFreeAsync(p, side));
    SAY("twice", cuMemFreeAsync(p, side));
    SAY("by cuMemFree then", cuMemFree_v2(p));
    OK(cuStreamSynchronize(side));
    SAY("twice, after all", cuMemFreeAsync(p, side));

    OK(cuMemAllocAsync(&p, 100000, side));
    OK(touch(side, p, 100000, 1, 100000));
    OK(cuStreamSynchronize(side));
    SAY("inside, by cuMemFree", cuMemFree_v2(p + 512));
    SAY("by cuMemFree", cuMemFree_v2(p));
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
    SAY("by cuMemFree twice", cuMemFree_v2(p));
    SAY("on the stream", cuMemFreeAsync(p, side));

    /* Memory of cuMemAlloc may be freed in a stream's order; what is allocated next on the stream may be it. */
    OK(cuMemAlloc_v2(&p, 3 * MIB));
    OK(touch(side, p, 3 * MIB, 1, 200000));
    SAY("of cuMemAlloc", cuMemFreeAsync(p, side));
    OK(cuMemAllocAsync(&q, 3 * MIB, side));
    OK(touch(side, q, 3 * MIB, 1, 1000));
    OK(cuMemFreeAsync(q, side));
    OK(cuStreamSynchronize(side));
    SAY("of cuMemAlloc, then by cuMemFree", cuMemFree_v2(p));

    /* Host memory and memory that the program mapped itself are not for it. */
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    CUhandle handle = 0;
    void *host = NULL;
    OK(cuMemHostAlloc(&host, 4096, 0));
    SAY("of the host", cuMemFreeAsync((CUdeviceptr)(uintptr_t)host, side));
    OK(cuMemFreeHost(host));
    OK(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    OK(cuMemMap(p, 2 * MIB, 0, handle, 0));
    SAY("mapped", cuMemFreeAsync(p, side));
    SAY("mapped, by cuMemFree", cuMemFree_v2(p));
    OK(cuMemUnmap(p, 2 * MIB));
    OK(cuMemAddressFree(p, 2 * MIB));
    OK(cuMemRelease(handle));
    printf("used %llu, reserved %llu\n", attribute(default_pool(0), USED_NOW), attribute(default_pool(0), RESERVED_NOW));
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    start_streams();
    if (!strcmp(argv[1], "pointers")) pointers();
    if (!strcmp(argv[1], "ipc")) ipc();
    if (!strcmp(argv[1], "sizes")) sizes();
    if (!strcmp(argv[1], "frees")) frees();
    return 0;
}

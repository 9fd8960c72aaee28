/* What the driver says an address belongs to, for blocks that are new and blocks that were used before. */
#include "program.h"

enum { MEMORY_TYPE = 2, RANGE_START_ADDR = 11, RANGE_SIZE = 12 };

/* The same by attributes, one by one and all at once. */
static void ask_attributes(CUdeviceptr block, CUdeviceptr address) {
    CUdeviceptr base = 0, bases = 0;
    size_t size = 0, sizes = 0;
    unsigned type = 0;
    int numbers[] = {RANGE_SIZE, MEMORY_TYPE, RANGE_START_ADDR};
    void *values[] = {&sizes, &type, &bases};
    printf("start %d", cuPointerGetAttribute(&base, RANGE_START_ADDR, address));
    printf(" %d, size %d", base == block, cuPointerGetAttribute(&size, RANGE_SIZE, address));
    printf(" %zu, all %d", size, cuPointerGetAttributes(3, numbers, values, address));
    printf(" %d %zu %u\n", bases == block, sizes, type);
}

static void ask(size_t bytes) {
    CUdeviceptr block = allocate(bytes), base = 0;
    size_t size = 0;
    printf("%zu:", bytes);
    for (size_t at = 0; at < bytes; at += bytes / 2 + 1) {
        printf(" %d", cuMemGetAddressRange_v2(&base, &size, block + at));
        printf(" %d %zu", base == block, size);
        printf("\n# inside %d\n", base <= block && block + bytes <= base + size);
        ask_attributes(block, block + at);
    }
    printf("base only: %d", cuMemGetAddressRange_v2(&base, NULL, block));
    printf(", size only: %d", cuMemGetAddressRange_v2(NULL, &size, block));
    printf(" %zu\n", size);
    OK(cuMemFree_v2(block));
    printf("# freed: %d\n", cuMemGetAddressRange_v2(&base, &size, block));
    printf("freed: %d\n", cuPointerGetAttribute(&size, RANGE_SIZE, block));
}

int main(void) {
    static const size_t sizes[] = {10000, 3000000, 9000, 2800000, 100, 10000};
    start();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) ask(sizes[i]);
    return 0;
}

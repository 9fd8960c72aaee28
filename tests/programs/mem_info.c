/* cuMemGetInfo with each of its two results missing, before any allocation, with one, and with one in the cache; or with
   blocks of the size in the argument. */
#include "program.h"

static void ask(const char *when) {
    size_t available = 1, total = 2;
    printf("%s: neither %d", when, cuMemGetInfo_v2(NULL, NULL));
    printf(", free only %d", cuMemGetInfo_v2(&available, NULL));
    printf(" %zu", available);
    printf(", total only %d", cuMemGetInfo_v2(NULL, &total));
    printf(" %zu", total);
    available = total = 3;
    printf(", both %d", cuMemGetInfo_v2(&available, &total));
    printf(" %zu %zu\n", available, total);
}

int main(int argc, char **argv) {
    CUdeviceptr blocks[8];
    start();
    ask("before");
    if (argc > 1) {
        for (int i = 0; i < 8; i++) blocks[i] = allocate((size_t)atol(argv[1]));
        ask("allocated");
        for (int i = 0; i < 8; i++) OK(cuMemFree_v2(blocks[i]));
        ask("freed");
        return 0;
    }
    CUdeviceptr block = allocate(40 * MIB);
    ask("allocated");
    OK(cuMemFree_v2(block));
    ask("freed");
    for (int i = 0; i < 8; i++) blocks[i] = allocate(8 * MIB);
    for (int i = 0; i < 8; i += 2) OK(cuMemFree_v2(blocks[i]));
    ask("half freed");
    for (int i = 1; i < 8; i += 2) OK(cuMemFree_v2(blocks[i]));
    ask("all freed");
    return 0;
}

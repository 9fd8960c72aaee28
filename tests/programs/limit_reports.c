/* Programs of public reports on memory limits that other libraries keep. Arguments, by the first:
   lowered FILE WHICH: process 0 holds 80 MiB; what process 1 sees, whose limit is lower, before and after.
   race FILE WHICH MIB ROUNDS: two processes ask for as much at the same moment, in each round.
   external: a buffer of another API's memory is mapped and freed. */
#include "program.h"
#include "turns.h"

/* As the header of the driver has them, with the reserved words. */
typedef struct { unsigned kind; unsigned long long handle[2], size; unsigned flags, reserved[16]; } ExternalMemory;
typedef struct { unsigned long long offset, size; unsigned flags, reserved[16]; } ExternalBuffer;

static void say_figures(const char *when) {
    size_t available = 0, all = 0;
    CUdeviceptr block = 0;
    OK(cuMemGetInfo_v2(&available, &all));
    int result = cuMemAlloc_v2(&block, 30 * MIB);
    printf("%s: free %zu of %zu; 30 more: %d\n", when, available >> 20, all >> 20, result);
    if (block) OK(cuMemFree_v2(block));
}

static void lowered(const char *file, int which) {
    CUdeviceptr block = 0;
    start();
    await_turn(file, which);
    if (which == 0) {
        OK(cuMemAlloc_v2(&block, 80 * MIB));
        pass_turn(file);
        await_turn(file, 2);
        OK(cuMemFree_v2(block));
        pass_turn(file);
        await_turn(file, 4);
        return;
    }
    say_figures("beside 80");
    pass_turn(file);
    await_turn(file, 3);
    /* After a round in vain, others are not asked again at once. */
    sleep_ms(1100);
    say_figures("alone");
    pass_turn(file);
}

static void race(char **argv) {
    const char *file = argv[2];
    size_t bytes = (size_t)atol(argv[4]) * MIB;
    int rounds = atoi(argv[5]), step = 0;
    start();
    for (int i = 0; i < rounds; i++) {
        CUdeviceptr block = 0;
        /* Both are there, both have asked, both have freed. */
        pass_turn(file);
        await_turn(file, step += 2);
        int result = cuMemAlloc_v2(&block, bytes);
        putchar(result == SUCCESS ? '+' : result == OUT_OF_MEMORY ? '-' : '?');
        pass_turn(file);
        await_turn(file, step += 2);
        if (block) OK(cuMemFree_v2(block));
        pass_turn(file);
        await_turn(file, step += 2);
    }
    putchar('\n');
}

static void external(void) {
    AllocationProp on_device = {.type = 1, .handles = 1, .location = {1, 0}};
    CUresult (*import)(void **, const ExternalMemory *) = NULL, (*map)(CUdeviceptr *, void *, const ExternalBuffer *) = NULL;
    CUresult (*destroy)(void *) = NULL;
    CUhandle memory = 0;
    CUdeviceptr address = 0;
    void *imported = NULL;
    int fd = -1;
    start();
    *(void **)&import = dlsym(driver, "cuImportExternalMemory");
    *(void **)&map = dlsym(driver, "cuExternalMemoryGetMappedBuffer");
    *(void **)&destroy = dlsym(driver, "cuDestroyExternalMemory");
    TRUE(import && map && destroy);
    OK(cuMemCreate(&memory, 8 * MIB, &on_device, 0));
    OK(cuMemExportToShareableHandle(&fd, memory, 1, 0));
    size_t before = free_memory();
    OK(import(&imported, &(ExternalMemory){.kind = 1, .handle = {(unsigned)fd}, .size = 8 * MIB}));
    OK(map(&address, imported, &(ExternalBuffer){.size = 8 * MIB}));
    size_t mapped = free_memory();
    printf("mapped: %zu more", (before - mapped) >> 20);
    printf(", freed: %d", cuMemFree_v2(address));
    printf(", destroyed: %d", destroy(imported));
    printf(", released: %d", cuMemRelease(memory));
    printf("; free %zu\n", free_memory() >> 20);
}

int main(int argc, char **argv) {
    TRUE(argc >= 2);
    if (!strcmp(argv[1], "lowered")) lowered(argv[2], atoi(argv[3]));
    else if (!strcmp(argv[1], "race")) race(argv);
    else external();
    return 0;
}

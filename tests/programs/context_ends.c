/* Contexts end while threads allocate, use and free memory in another one: no request and no free of theirs fails, and they get
   their own blocks again. Argument: which contexts end, `plain`, `green` or `busy`: a plain one, whose end waits for no
   work of another. Notes how many MiB the device was short of at most. */
#include "program.h"
#include <stdatomic.h>

static CUcontext primary;
static atomic_int stops, refused, failed, wrong;
static atomic_size_t least = SIZE_MAX;

/* At most 20 blocks of 1 MiB live, each freed under work; every other one may be open in another process. */
static void *churn(void *argument) {
    unsigned seed = 77 * (unsigned)(uintptr_t)argument + 5;
    CUdeviceptr blocks[20] = {0};
    OK(cuCtxSetCurrent(primary));
    CUstream stream = side_stream();
    for (int n = 0; !stops; n++) {
        seed = seed * 1103515245 + 12345;
        CUdeviceptr *block = &blocks[(seed >> 16) % 20];
        if (*block) {
            OK(work(stream, *block, 1 * MIB, 1, 20000));
            failed += cuMemFree_v2(*block) != SUCCESS;
            *block = 0;
        } else if (cuMemAlloc_v2(block, 1 * MIB)) {
            refused++;
            *block = 0;
        } else if (n & 1) {
            IpcHandle handle;
            wrong += cuIpcGetMemHandle(&handle, *block) != SUCCESS;
        }
        size_t now = n % 64 ? SIZE_MAX : driver_free();
        if (now < least) least = now;
    }
    OK(cuCtxSynchronize());
    for (int i = 0; i < 20; i++)
        if (blocks[i]) failed += cuMemFree_v2(blocks[i]) != SUCCESS;
    return NULL;
}

/* `frees`: how many of its blocks it frees before. */
static void end_plain(int uses, int frees) {
    CUcontext context = NULL;
    CUdeviceptr blocks[4];
    OK(cuCtxCreate_v2(&context, 0, 0));
    for (int i = 0; i < uses; i++) blocks[i] = allocate(1 * MIB);
    for (int i = 0; i < frees; i++) OK(cuMemFree_v2(blocks[i]));
    OK(cuCtxDestroy_v2(context));
}

static void end_green(void) {
    CUresult (*create)(void **, void *, CUdevice, unsigned), (*destroy)(void *);
    *(void **)&create = dlsym(driver, "cuGreenCtxCreate");
    *(void **)&destroy = dlsym(driver, "cuGreenCtxDestroy");
    void *green = NULL;
    OK(create(&green, (void *)8, 0, 1));
    OK(destroy(green));
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    primary = start();
    TRUE(argc == 2);
    size_t before = driver_free();
    if (!strcmp(argv[1], "busy")) {
        CUstream stream = side_stream();
        OK(work(stream, allocate(4096), 4096, 1, 1500000000));
        end_plain(4, 0);
        printf("the work goes on: %d\n", cuStreamQuery(stream) == NOT_READY);
    } else {
        for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
        for (int i = 0; i < 40; i++) {
            if (!strcmp(argv[1], "green")) end_green();
            else end_plain(i % 3 ? 4 : 0, i % 3);
            sleep_ms(5);
        }
        stops = 1;
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        printf("# MiB %llu\n", (before - least) / MIB);
    }
    printf("refused %d, failed %d, without a handle %d\n", refused, failed, wrong);
    return 0;
}

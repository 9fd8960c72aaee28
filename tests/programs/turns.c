/* Needs much memory in each of its turns, and none between. Arguments: the file of the turns; this process's number, 0 or 1;
   MiB; how many turns; "async" for stream-ordered memory, which the pool keeps (its release threshold is all),
   "loads" to load code first. */
#include "program.h"
#include "turns.h"

enum { BLOCKS = 4 };

int main(int argc, char **argv) {
    TRUE(argc >= 5);
    const char *file = argv[1];
    size_t bytes = (size_t)atol(argv[3]) * MIB / BLOCKS;
    int refused = 0, loads = argc > 5 && !strcmp(argv[5], "loads"), is_async = argc > 5 && !loads;
    start();
    if (is_async) {
        CUmemoryPool pool = NULL;
        uint64_t all = UINT64_MAX;
        OK(cuDeviceGetDefaultMemPool(&pool, 0));
        OK(cuMemPoolSetAttribute(pool, 4, &all));
    }
    for (int i = 0; i < atoi(argv[4]); i++) {
        CUdeviceptr block[BLOCKS] = {0};
        await_turn(file, 2 * i + atoi(argv[2]));
        if (loads) {
            void *module = NULL;
            int code = cuModuleLoadData(&module, "code");
            if (code) refused++;
            else OK(cuModuleUnload(module));
        }
        for (int j = 0; j < BLOCKS; j++) {
            int code = is_async ? cuMemAllocAsync(&block[j], bytes, NULL) : cuMemAlloc_v2(&block[j], bytes);
            if (code) refused++;
            else OK(cuMemsetD8Async(block[j], j, bytes, NULL));
        }
        for (int j = 0; j < BLOCKS; j++) {
            if (block[j]) OK(is_async ? cuMemFreeAsync(block[j], NULL) : cuMemFree_v2(block[j]));
        }
        OK(cuStreamSynchronize(NULL));
        pass_turn(file);
    }
    printf("# refused %d\n", refused);
    /* The other one has its last turn while this one is there. */
    await_turn(file, 2 * atoi(argv[4]));
    return 0;
}

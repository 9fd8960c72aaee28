/* A cudart that is loaded RTLD_LOCAL and used through dlsym. Argument: its name. */
#include "program.h"

int main(int argc, char **argv) {
    TRUE(argc == 2);
    void *runtime = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *block = NULL;
    TRUE(runtime != NULL);
    int (*allocate_)(void **, size_t) = NULL, (*free_)(void *) = NULL, (*version)(int *) = NULL, n = 0;
    *(void **)&allocate_ = dlsym(runtime, "cudaMalloc");
    *(void **)&free_ = dlsym(runtime, "cudaFree");
    *(void **)&version = dlsym(runtime, "cudaRuntimeGetVersion");
    OK(version(&n));
    printf("version %d\n", n);
    for (int i = 0; i < 5; i++) {
        OK(allocate_(&block, 30000));
        OK(free_(block));
    }
    printf("absent: %p\n", dlsym(runtime, "cudaNothing"));
    return 0;
}

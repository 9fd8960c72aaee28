/* Functions of another library whose names look like the driver's are that library's. Argument: its path. */
#include "program.h"

typedef int Plain(void);

int main(int argc, char **argv) {
    start();
    TRUE(argc == 2);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    TRUE(library != NULL);
    const char *names[] = {"cudnnCreate", "cublasCreate_v2", "cuMemcached", "cu", "cuNothing"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Plain *function = NULL;
        *(void **)&function = dlsym(library, names[i]);
        printf("%s: %s %d\n", names[i], library_of((void *)function), function ? function() : -1);
    }
    Plain *again = NULL;
    *(void **)&again = dlsym(library, "cudnnCreate");
    printf("cudnnCreate again: %d\n", again());
    int (*own)(void *, size_t) = NULL;
    *(void **)&own = dlsym(library, "cuMemAlloc_v2");
    printf("its own cuMemAlloc_v2: %s %d\n", library_of((void *)own), own(NULL, 7));
    CUdeviceptr block = allocate(4096);
    OK(cuMemFree_v2(block));
    return 0;
}

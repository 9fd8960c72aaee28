/* Works with the driver beside other preloaded libraries and says whether they were used. */
#include "program.h"

int main(void) {
    int (*second)(void) = NULL;
    unsigned long (*mallocs)(void) = NULL;
    start();
    for (int i = 0; i < 20; i++) {
        CUdeviceptr block = allocate((size_t)(1 + i) * 1000);
        char *host = malloc(1000 + (size_t)i);
        memset(host, i, 1000);
        OK(cuMemcpyHtoD_v2(block, host, 1000));
        free(host);
        OK(cuMemFree_v2(block));
    }
    *(void **)&second = dlsym(RTLD_DEFAULT, "second_dlsym_calls");
    *(void **)&mallocs = dlsym(RTLD_DEFAULT, "counted_mallocs");
    void *next_puts = dlsym(RTLD_NEXT, "puts");
    printf("next puts: %s\n", library_of(next_puts));
    printf("second dlsym used: %d\n", second ? second() > 0 : -1);
    printf("malloc counted: %d\n", mallocs ? mallocs() > 20 : -1);
    return 0;
}

/* Asks a driver for functions and versions that no driver has yet, and works on. */
#include "program.h"

int main(void) {
    int version = 0;
    ProcAddress *get = NULL;
    start();
    OK(cuDriverGetVersion(&version));
    printf("driver %d\n", version);
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    for (int i = 0; i < 2000; i++) {
        char name[40];
        void *found = (void *)1;
        int status = -1;
        snprintf(name, sizeof name, "cuFutureFunction%d", i % 100);
        int result = get(name, &found, 99000, 0, &status);
        if (i < 3) printf("%s: %d %d %p\n", name, result, status, found);
        if (i < 3) printf("by dlsym: %p\n", dlsym(driver, name));
    }
    void *newest = NULL;
    printf("cuMemAlloc of 99.0: %d %s\n", get("cuMemAlloc", &newest, 99000, 0, NULL), symbol_at(newest));
    printf("unknown flags: %d\n", get("cuMemAlloc", &newest, 12000, 1ull << 40, NULL));
    CUdeviceptr block = allocate(5000);
    OK(cuMemsetD8_v2(block, 7, 5000));
    OK(cuMemFree_v2(block));
    return 0;
}

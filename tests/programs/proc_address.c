/* The driver through cuGetProcAddress, found in the way that the argument names; then one allocation. */
#include "program.h"

typedef CUresult ProcAddress1(const char *, void **, int, uint64_t);
typedef CUresult Allocate(CUdeviceptr *, size_t);
typedef CUresult Free(CUdeviceptr);

int main(int argc, char **argv) {
    void *allocate_ = NULL, *free_ = NULL, *found = NULL;
    start();
    TRUE(argc == 2);
    const char *way = argv[1];
    ProcAddress *get = NULL;
    ProcAddress1 *get1 = NULL;
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    *(void **)&get1 = dlsym(driver, "cuGetProcAddress");
    TRUE(get && get1);
    if (!strcmp(way, "v1")) get = NULL;
    if (!strcmp(way, "v1-by-v1")) {
        OK(get1("cuGetProcAddress", &found, 11030, 0));
        *(void **)&get1 = found;
        get = NULL;
    }
    if (!strcmp(way, "v1-by-v2")) {
        OK(get("cuGetProcAddress", &found, 11030, 0, NULL));
        *(void **)&get1 = found;
        get = NULL;
    }
    if (!strcmp(way, "v2-by-v1")) {
        OK(get1("cuGetProcAddress", &found, 12000, 0));
        *(void **)&get = found;
    }
    for (int i = 0; !strcmp(way, "itself") && i < 3; i++) {
        found = NULL;
        OK(get("cuGetProcAddress", &found, 12000, 0, NULL));
        TRUE(found != NULL);
        *(void **)&get = found;
    }
    if (get) {
        int status = -1;
        OK(get("cuMemAlloc", &allocate_, 12000, 0, &status));
        printf("status %d\n", status);
        OK(get("cuMemFree", &free_, 12000, 0, NULL));
    } else {
        OK(get1("cuMemAlloc", &allocate_, 11030, 0));
        OK(get1("cuMemFree", &free_, 11030, 0));
    }
    CUdeviceptr block = 0;
    OK(((Allocate *)allocate_)(&block, 123456));
    TRUE(block != 0);
    OK(((Free *)free_)(block));
    printf("%s %s\n", symbol_at(allocate_), symbol_at(free_));
    return 0;
}

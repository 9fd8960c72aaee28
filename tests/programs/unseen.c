/* Memory that went past the shim: allocated through glibc's own dlsym and freed through the usual door, and the
   other way round. */
#include "program.h"

int main(void) {
    start();
    CUresult (*true_allocate)(CUdeviceptr *, size_t) = NULL;
    CUresult (*true_free)(CUdeviceptr) = NULL;
    *(void **)&true_allocate = true_symbol(driver, "cuMemAlloc_v2");
    *(void **)&true_free = true_symbol(driver, "cuMemFree_v2");
    TRUE(true_allocate && true_free);
    printf("# true %s, usual %s\n", library_of((void *)true_allocate), library_of((void *)cuMemAlloc_v2));

    CUdeviceptr ours = allocate(1 * MIB), unseen[4];
    size_t before = driver_free();
    for (int i = 0; i < 4; i++) OK(true_allocate(&unseen[i], 16 * MIB));
    for (int i = 0; i < 4; i++) printf("free of unseen: %d\n", cuMemFree_v2(unseen[i]));
    printf("again: %d\n", cuMemFree_v2(unseen[0]));
    printf("really freed: %d\n", before == driver_free());
    OK(cuMemFree_v2(ours));
    printf("never allocated: %d\n", cuMemFree_v2(0x123456789000ull));

    /* The driver may give an address again whose free went past the shim. */
    for (int i = 0; i < 16; i++) {
        CUdeviceptr block = allocate((size_t)(3 + i) * MIB);
        OK(true_free(block));
    }
    for (int i = 0; i < 16; i++) {
        CUdeviceptr block = allocate((size_t)(3 + i) * MIB);
        OK(cuMemsetD8_v2(block, 1, (size_t)(3 + i) * MIB));
        printf("free after: %d\n", cuMemFree_v2(block));
    }
    return 0;
}

/* A program that is linked against the driver. */
#include <stdio.h>
#include <stddef.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long), cuMemGetInfo_v2(size_t *, size_t *);
int cuStreamCreate(void **, unsigned), cuMemsetD8_v2(unsigned long long, unsigned char, size_t);
int main(void) {
    void *context = NULL, *stream = NULL;
    unsigned long long block = 0;
    size_t available = 0, total = 0;
    printf("%d", cuInit(0));
    printf(" %d", cuDevicePrimaryCtxRetain(&context, 0));
    printf(" %d", cuCtxSetCurrent(context));
    printf(" %d\n", cuStreamCreate(&stream, 1));
    for (int i = 0; i < 4; i++) {
        printf("%d", cuMemAlloc_v2(&block, 20000));
        printf(" %d", cuMemsetD8_v2(block, 1, 20000));
        printf(" %d\n", cuMemFree_v2(block));
    }
    printf("%d", cuMemGetInfo_v2(&available, &total));
    printf(" %zu\n", total);
    return 0;
}

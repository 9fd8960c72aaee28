/* A program that would use CUDA if it were there, by weak references. */
#include <stddef.h>
#include <stdio.h>

extern int cudaMalloc(void **address, size_t bytes) __attribute__((weak));
extern int cudaFree(void *address) __attribute__((weak));
extern int cuInit(unsigned flags) __attribute__((weak));
extern int cuMemAlloc_v2(void *address, size_t bytes) __attribute__((weak));
extern int cuMemFree_v2(unsigned long long address) __attribute__((weak));
extern int ncclCommInitAll(void **communicators, int devices, const int *list) __attribute__((weak));

int main(void)
{
    char block = 0;
    void *address = &block;
    printf("cudaMalloc %d\n", cudaMalloc == NULL ? -1 : cudaMalloc(&address, 100));
    printf("cudaFree %d\n", cudaFree == NULL ? -1 : cudaFree(&block));
    printf("cuMemAlloc_v2 %d\n", cuMemAlloc_v2 == NULL ? -1 : cuMemAlloc_v2(&address, 100));
    printf("cuMemFree_v2 %d\n", cuMemFree_v2 == NULL ? -1 : cuMemFree_v2(4096));
    printf("ncclCommInitAll %d\n", ncclCommInitAll == NULL ? -1 : ncclCommInitAll(&address, 1, NULL));
    printf("untouched %d\n", address == (void *)&block);
    return 0;
}

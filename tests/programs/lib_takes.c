/* A library that takes device memory for itself, in a function of the name NAME. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

__attribute__((noinline)) int NAME(size_t bytes) {
    unsigned long long address = 0;
    int (*allocate)(unsigned long long *, size_t) = NULL;
    *(void **)&allocate = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    volatile int result = allocate ? allocate(&address, bytes) : -1;
    return result;
}

/* Plays libc10.so: the functions by which PyTorch announces its tensors, under the names of both generations. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
typedef struct { int8_t type, index; } Device;
/* A size at which the function is left as by an exception: through its callers. */
#define LEAVE(size) \
    if ((size) == 99) pthread_exit((void *)99)
#define USAGE(name, symbol)                                                                                         \
    void name(void *p, int64_t size, uint64_t allocated, uint64_t reserved, Device device) __asm__(symbol);          \
    void name(void *p, int64_t size, uint64_t allocated, uint64_t reserved, Device device) {                         \
        LEAVE(size);                                                                                                 \
        printf(#name " %p %lld %llu %llu %d:%d\n", p, (long long)size, (unsigned long long)allocated,               \
               (unsigned long long)reserved, device.type, device.index);                                            \
    }
#define FAILED(name, symbol)                                                                                        \
    void name(int64_t size, uint64_t allocated, uint64_t reserved, Device device) __asm__(symbol);                   \
    void name(int64_t size, uint64_t allocated, uint64_t reserved, Device device) {                                  \
        LEAVE(size);                                                                                                 \
        printf(#name " %lld %llu %llu %d:%d\n", (long long)size, (unsigned long long)allocated,                     \
               (unsigned long long)reserved, device.type, device.index);                                            \
    }
USAGE(usage, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
USAGE(usage_of_1_12, "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE")
FAILED(failed, "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")
FAILED(failed_of_1_12, "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE")

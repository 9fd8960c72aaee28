/* Plays libc10_cuda.so: announces tensors across the boundary between the two libraries. Each value is distinct. */
#include <stdint.h>
typedef struct { int8_t type, index; } Device;
#define USAGE(name, symbol) void name(void *, int64_t, uint64_t, uint64_t, Device) __asm__(symbol)
#define FAILED(name, symbol) void name(int64_t, uint64_t, uint64_t, Device) __asm__(symbol)
USAGE(usage, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
USAGE(usage_of_1_12, "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE");
FAILED(failed, "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
FAILED(failed_of_1_12, "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE");
void announce(int old) {
    Device gpu = {1, 3}, cpu = {0, -1};
    if (old) {
        usage_of_1_12((void *)0x7f0000001000, 4096, 5000, 6000, gpu);
        usage_of_1_12((void *)0x7f0000001000, -4096, 904, 6000, gpu);
        usage_of_1_12((void *)0x1234, 77, 0, 0, cpu);
        failed_of_1_12((int64_t)5 << 40, 904, 6000, gpu);
    } else {
        usage((void *)0x7f0000002000, (int64_t)3 << 32, (uint64_t)4 << 32, (uint64_t)5 << 32, gpu);
        usage((void *)0x7f0000002000, -((int64_t)3 << 32), (uint64_t)1 << 32, (uint64_t)5 << 32, gpu);
        usage((void *)0x1234, 77, 0, 0, cpu);
        failed((int64_t)6 << 40, (uint64_t)1 << 32, (uint64_t)5 << 32, gpu);
    }
}
/* Announces what is answered by leaving this function, too: 0 and 1 as above, 2 and 3 for failures. */
void leave(int which) {
    Device gpu = {1, 3};
    switch (which) {
    case 0: usage((void *)0x7f0000003000, 99, 99, 99, gpu); break;
    case 1: usage_of_1_12((void *)0x7f0000003000, 99, 99, 99, gpu); break;
    case 2: failed(99, 99, 99, gpu); break;
    default: failed_of_1_12(99, 99, 99, gpu);
    }
}

/* cuMemCreate on the host is no device memory. Then the same on the device. */
#include "program.h"

int main(void) {
    static const struct { Location location; const char *name; } places[] = {
        {{2, 0}, "host"}, {{3, 0}, "host NUMA node"}, {{1, 0}, "device"}};
    start();
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        AllocationProp prop = {.type = 1, .location = places[i].location};
        CUhandle handle = 0;
        CUresult result = cuMemCreate(&handle, 64 * MIB, &prop, 0);
        printf("%s: %d\n", places[i].name, result);
        if (result != SUCCESS) continue;
        printf("# made %s\n", places[i].name);
        OK(cuMemRelease(handle));
    }
    return 0;
}

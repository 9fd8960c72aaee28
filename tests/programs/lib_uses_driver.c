/* A plugin that is linked against the driver. */
#include <stddef.h>
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
int plugin_works(size_t bytes) {
    unsigned long long block = 0;
    int result = cuMemAlloc_v2(&block, bytes);
    return result ? result : cuMemFree_v2(block);
}

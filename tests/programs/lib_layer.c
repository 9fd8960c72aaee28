/* Stands in front of `layered` and finds the next one with RTLD_NEXT, as wrappers do, again at each call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static int entered;
int layered(int depth) {
    if (++entered > 8) return -1; /* its own caller for ever */
    int (*next)(int) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "layered");
    int result = next ? next(depth + 1) : -2;
    entered--;
    return result;
}

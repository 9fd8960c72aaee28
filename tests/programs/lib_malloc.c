/* A second preloaded library that interposes malloc through RTLD_NEXT, as heap profilers do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static __thread int busy;
static unsigned long count;
static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
void *malloc(size_t bytes) {
    if (!next_malloc) *(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
    if (!busy) {
        busy = 1;
        __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
        busy = 0;
    }
    return next_malloc(bytes);
}
void free(void *address) {
    if (!next_free) *(void **)&next_free = dlsym(RTLD_NEXT, "free");
    next_free(address);
}
unsigned long counted_mallocs(void) { return count; }

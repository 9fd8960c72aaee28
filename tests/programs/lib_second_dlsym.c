/* A second preloaded library that exports dlsym, as profilers and audio shims do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int calls;
void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    if (!next) *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    calls++;
    return next(handle, name);
}
int second_dlsym_calls(void) { return calls; }

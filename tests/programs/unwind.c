/* A stack walk that begins beneath our dlopen or dlsym goes on to main. Argument: the library that walks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stddef.h>
typedef struct { int walks, reached, ended, frames, at_main; char *main_start, *main_end; } Walk;
/* Exported to the library: where main's code begins and ends. */
char *main_bounds[2];

/* Nothing on the stack that a walk gone astray could take for an address of main's. */
static void __attribute__((noinline)) clear_stack(void) {
    volatile char below[8192];
    for (size_t i = 0; i < sizeof below; i++) below[i] = 0;
}

static void tell(const char *what, void *library, const char *symbol) {
    Walk *walk = dlsym(library, symbol);
    /* The resolver may be asked more than once: every walk counts. */
    int all = walk->walks > 0 && walk->reached == walk->walks && walk->ended == walk->walks;
    printf("%s: all walks reached main and ended: %d\n# walks %d\n", what, all, walk->walks);
    walk->walks = walk->reached = walk->ended = 0;
}

__attribute__((section(".text.walked"), noinline)) int main(int argc, char **argv) {
    main_bounds[0] = (char *)main;
    main_bounds[1] = (char *)main + 1024;
    /* The driver is here, so that its names are looked up for real. */
    if (argc != 2 || !dlopen("libcuda.so.1", RTLD_NOW)) return 3;
    clear_stack();
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return 3;
    }
    tell("in a constructor under dlopen", library, "of_constructor");
    int (*plain)(void *, size_t) = NULL, (*named)(void *, size_t) = NULL;
    clear_stack();
    *(void **)&plain = dlsym(library, "other_ifunc");
    tell("in a resolver under dlsym", library, "of_resolver");
    clear_stack();
    *(void **)&named = dlsym(library, "cuMemAlloc_v2");
    tell("in a resolver of a driver's name under dlsym", library, "of_resolver");
    printf("%d %d\n", plain(NULL, 1), named(NULL, 2));
    return 0;
}

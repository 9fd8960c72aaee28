/* A stack walk that begins beneath our dlopen or dlsym goes on to main. Argument: the library that walks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stddef.h>
typedef struct { int frames, reached_main; void *main_start, *main_end; } Walk;
/* Exported to the library: where main's code begins and ends. */
void *main_bounds[2];

static void tell(const char *what, void *library, const char *symbol) {
    Walk *walk = dlsym(library, symbol);
    printf("%s: reached main %d, ended %d\n", what, walk->reached_main, walk->frames <= 200);
    walk->reached_main = walk->frames = 0;
}

__attribute__((section(".text.walked"), noinline)) int main(int argc, char **argv) {
    main_bounds[0] = (char *)main;
    main_bounds[1] = (char *)main + 1024;
    /* The driver is here, so that its names are looked up for real. */
    if (argc != 2 || !dlopen("libcuda.so.1", RTLD_NOW)) return 3;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return 3;
    }
    tell("in a constructor under dlopen", library, "of_constructor");
    int (*plain)(void *, size_t) = NULL, (*named)(void *, size_t) = NULL;
    *(void **)&plain = dlsym(library, "other_ifunc");
    tell("in a resolver under dlsym", library, "of_resolver");
    *(void **)&named = dlsym(library, "cuMemAlloc_v2");
    tell("in a resolver of a driver's name under dlsym", library, "of_resolver");
    printf("%d %d\n", plain(NULL, 1), named(NULL, 2));
    return 0;
}

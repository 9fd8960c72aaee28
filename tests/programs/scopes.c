/* What dlsym finds from the program and from a local plugin, with each kind of handle. Argument: the plugin. */
#include "program.h"

static void tell(const char *what, void *address) {
    printf("%s: %s in %s\n", what, symbol_at(address), library_of(address));
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    void *(*looks)(int) = NULL;
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    TRUE(plugin != NULL);
    tell("plugin's symbol by its handle", dlsym(plugin, "plugin_secret"));
    tell("plugin's symbol by the program", dlsym(RTLD_DEFAULT, "plugin_secret"));
    *(void **)&looks = dlsym(plugin, "plugin_looks");
    tell("plugin's symbol by the plugin", looks(0));
    tell("next puts of the plugin", looks(1));
    tell("default puts", dlsym(RTLD_DEFAULT, "puts"));
    tell("next puts", dlsym(RTLD_NEXT, "puts"));
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    tell("puts by handle", dlsym(libc, "puts"));
    printf("wrong handle: %p\n", dlsym(NULL, "no_such_symbol"));
    printf("error: %s\n", dlerror() ? "set" : "not set");
    printf("error once: %s\n", dlerror() ? "set" : "not set");
    printf("absent library: %p\n", dlopen("libabsent.so.9", RTLD_NOW));
    const char *error = dlerror();
    printf("error: %s\n", error ? error : "not set");

    start();
    const char *names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuDeviceGet", "cuMemAlloc", "cuNothing"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *by_handle = dlsym(driver, names[i]), *by_default = dlsym(RTLD_DEFAULT, names[i]), *next = dlsym(RTLD_NEXT, names[i]);
        printf("%s: %s %s\n", names[i], symbol_at(by_handle), symbol_at(by_default));
        printf("# %s %s %s %s\n", names[i], library_of(by_handle), library_of(by_default), library_of(next));
    }
    CUresult (*allocate_[3])(CUdeviceptr *, size_t);
    CUresult (*free_[3])(CUdeviceptr);
    void *where[] = {driver, RTLD_DEFAULT, RTLD_NEXT};
    for (int i = 0; i < 3; i++) {
        *(void **)&allocate_[i] = dlsym(where[i], "cuMemAlloc_v2");
        *(void **)&free_[i] = dlsym(where[i], "cuMemFree_v2");
        TRUE(allocate_[i] && free_[i]);
        CUdeviceptr block = 0;
        OK(allocate_[i](&block, 1000 + (size_t)i));
        OK(free_[i](block));
    }
    return 0;
}

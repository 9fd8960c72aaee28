/* A plugin is loaded RTLD_DEEPBIND: it finds its own dependencies before anything preloaded. Argument: the plugin.
   SHALLOW: the same without that flag. */
#include "program.h"

int main(int argc, char **argv) {
    TRUE(argc == 2);
    start();
    CUdeviceptr block = allocate(3000);
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (getenv("SHALLOW") ? 0 : RTLD_DEEPBIND));
    TRUE(plugin != NULL);
    int (*works)(size_t) = NULL;
    *(void **)&works = dlsym(plugin, "plugin_works");
    TRUE(works != NULL);
    for (int i = 0; i < 3; i++) printf("plugin: %d\n", works(70000));
    OK(cuMemFree_v2(block));
    block = allocate(3000);
    OK(cuMemFree_v2(block));
    return 0;
}

/* Libraries with a cudart of their own each, loaded RTLD_LOCAL. Arguments: the libraries. */
#include "program.h"

int main(int argc, char **argv) {
    for (int round = 0; round < 3; round++)
        for (int i = 1; i < argc; i++) {
            void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
            if (!library) printf("%s\n", dlerror());
            TRUE(library != NULL);
            int (*works)(size_t, int) = NULL;
            int (*version)(void) = NULL;
            *(void **)&works = dlsym(library, "user_works");
            *(void **)&version = dlsym(library, "user_version");
            printf("library %d, cudart %d: %d\n", i, version(), works(50000 + 10000 * (size_t)i, i));
        }
    return 0;
}

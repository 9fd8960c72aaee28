/* Loads the two libraries as Python does: RTLD_LOCAL, by an extension module. Argument: the second library. */
#include "program.h"

int main(int argc, char **argv) {
    TRUE(argc == 2);
    setvbuf(stdout, NULL, _IONBF, 0);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) printf("%s\n", dlerror());
    TRUE(library != NULL);
    void (*announce)(int) = NULL;
    *(void **)&announce = dlsym(library, "announce");
    for (int i = 0; i < 2; i++) {
        announce(0);
        announce(1);
    }
    return 0;
}

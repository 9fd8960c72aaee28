/* RTLD_NEXT starts after the library that asks. Linked with lib_layer before lib_base. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int layered(int depth);

static const char *where(void *address) {
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_sname ? info.dli_sname : "NULL";
}

int main(void) {
    for (int i = 0; i < 4; i++) printf("layered: %d\n", layered(0));
    const char *names[] = {"puts", "malloc", "layered", "dlsym", "dlopen", "absent_everywhere"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *first = dlsym(RTLD_NEXT, names[i]);
        printf("%s: %s", names[i], first ? "found" : "NULL");
        for (int repeat = 0; repeat < 4; repeat++) {
            void *again = dlsym(RTLD_NEXT, names[i]);
            printf(" %s", again == first ? "same" : "DIFFERS");
        }
        printf(" %s\n", where(first));
    }
    printf("error after a miss: %s\n", dlerror() ? "set" : "not set");
    return 0;
}

/* Allocations under functions whose names the test knows, the sizes telling which. Arguments: the part, libraries. */
#include "program.h"

#define KEEP __attribute__((noinline))
typedef int Allocate(CUdeviceptr *, size_t);
typedef int Entry(Allocate *, CUdeviceptr *, size_t);

static CUdeviceptr block;
static CUcontext context;

KEEP int inner(size_t bytes) {
    OK(cuMemAlloc_v2(&block, bytes));
    return 1;
}
KEEP int middle(size_t bytes) { return inner(bytes) + 1; }
KEEP int outer(size_t bytes) { return middle(bytes) + 1; }
KEEP int elsewhere(size_t bytes) { return inner(bytes) + 2; }

KEEP void *thread_function(void *bytes) {
    OK(cuCtxSetCurrent(context));
    return outer((size_t)bytes) ? NULL : bytes;
}

static void plain(void) {
    TRUE(outer(1000001) == 3);
    TRUE(elsewhere(1000002) == 3);
    pthread_t thread;
    TRUE(!pthread_create(&thread, NULL, thread_function, (void *)1000003));
    TRUE(!pthread_join(thread, NULL));
}

/* One library after the other at the same addresses. */
static void reload(char **libraries) {
    uintptr_t first = 0;
    for (int i = 0; i < 4; i++) {
        void *library = dlopen(libraries[i % 2], RTLD_NOW | RTLD_LOCAL);
        TRUE(library != NULL);
        Entry **entry = dlsym(library, "entry");
        TRUE(entry != NULL);
        if (!i) first = (uintptr_t)*entry;
        OK((*entry)((Allocate *)cuMemAlloc_v2, &block, 2000000 + i));
        printf("# entry %d\n", first == (uintptr_t)*entry);
        OK(dlclose(library));
    }
}

/* Twenty small and two large. */
static void many(void) {
    for (int i = 0; i < 20; i++) outer(1000 + i);
    outer(4 << 20);
    elsewhere(5 << 20);
}

int main(int argc, char **argv) {
    TRUE(argc >= 2);
    context = start();
    if (!strcmp(argv[1], "plain")) plain();
    if (!strcmp(argv[1], "many")) many();
    if (!strcmp(argv[1], "reload")) reload(argv + 2);
    return 0;
}

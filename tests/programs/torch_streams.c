/* A program on an allocator that does as PyTorch's, with a stream of its own for each kind of work. Argument: the library
   with that allocator. Notes: the handles of the streams, and the tensors made on each. */
#include "program.h"

static void *(*torch_malloc)(size_t);
static void (*torch_free)(void *), (*torch_stream)(int, void *);
static uint64_t (*torch_reserved)(void);

enum { STREAMS = 3, KEPT = 20, ROUNDS = 30, BYTES = 3 * MIB };
static CUstream streams[STREAMS];
static int made[STREAMS];

static void *tensor(int which) {
    torch_stream(which, streams[which]);
    void *at = torch_malloc(BYTES);
    TRUE(at != NULL);
    made[which]++;
    return at;
}

/* Tensors of one size, so that it does not matter which free place one gets. */
static void use_stream(int which, int most) {
    void *kept[KEPT] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < most; i++) {
            if ((round * 7 + i * 5) % 3 == 0 && kept[i]) {
                torch_free(kept[i]);
                kept[i] = NULL;
            } else if (!kept[i]) {
                kept[i] = tensor(which);
            }
        }
    }
    /* On whatever stream: the block goes back to its own. */
    torch_stream(0, NULL);
    for (int i = 0; i < most; i++) {
        if (kept[i]) torch_free(kept[i]);
    }
}

static void *thread(void *context) {
    OK(cuCtxSetCurrent(context));
    use_stream(2, KEPT / 2);
    return NULL;
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) printf("%s\n", dlerror());
    TRUE(library != NULL);
#define LOOK_UP(name) *(void **)&name = dlsym(library, #name); TRUE(name != NULL)
    LOOK_UP(torch_malloc);
    LOOK_UP(torch_free);
    LOOK_UP(torch_stream);
    LOOK_UP(torch_reserved);
    CUcontext context = start();
    for (int i = 1; i < STREAMS; i++) streams[i] = side_stream();
    pthread_t other;
    TRUE(pthread_create(&other, NULL, thread, context) == 0);
    use_stream(0, KEPT);
    TRUE(pthread_join(other, NULL) == 0);
    /* What the other two streams have freed is of no use for this one. */
    use_stream(1, KEPT / 2);
    for (int i = 0; i < STREAMS; i++) printf("# handle%d %llu\n# made%d %d\n", i, (unsigned long long)(size_t)streams[i], i, made[i]);
    printf("# reserved %llu\n", (unsigned long long)torch_reserved());
    return 0;
}

/* Announces tensors from deep stacks, as PyTorch's allocator does in a training: a tree of calls that are repeated in each
   step, of which consecutive ones differ in their innermost frames. With -DLIBC10 it is the library that plays libc10.so:

       gcc -O2 -shared -fPIC -DLIBC10 deep_stacks.c -o libc10.so && gcc -O2 deep_stacks.c -o deep_stacks -L. -lc10 -Wl,-rpath,$PWD

   Arguments:
   DEPTH   calls that all stacks have in common
   LAYERS  in a step: each announces 8 tensors, 8 to 24 calls further in
   STEPS   after 40 that are not counted
   Prints the number of events of the counted steps. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { int8_t type, index; } Device;
/* Of libc10.so, which the shim stands in front of. */
void report(void *, int64_t, uint64_t, uint64_t, Device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

#ifdef LIBC10
__attribute__((noinline)) void report(void *at, int64_t bytes, uint64_t allocated, uint64_t reserved, Device device) {
    __asm__ volatile("" : : "r"(at), "r"(bytes), "r"(allocated), "r"(reserved), "r"((int)device.type));
}
#else
enum { WARM = 40, KINDS = 8, MOST = 4096 };
static uint64_t live, events;
static char *blocks[MOST];
static int count;
static long sink;

static void announce(void *at, int64_t bytes) {
    events++;
    live += bytes;
    report(at, bytes, live, 1 << 30, (Device){1, 0});
}

static void tensor(int number) {
    static char memory[MOST * 512];
    if (count < MOST) blocks[count++] = memory + number % MOST * 512;
    announce(memory + number % MOST * 512, 512);
}

/* Functions with frames of their own; each calls the next of the path. */
typedef void Function(int depth, int path, int leaf);
static Function *const functions[KINDS];
static void go(int depth, int path, int leaf) {
    if (depth == 0) tensor(leaf);
    else functions[path % KINDS](depth - 1, path / 3 + 7 * depth + leaf % 5, leaf);
    sink++;
}
#define FUNCTION(name, words) \
    __attribute__((noinline)) static void name(int depth, int path, int leaf) { \
        volatile long room[words]; \
        room[0] = depth, room[words - 1] = path; \
        go(depth, path, leaf); \
        sink += room[0] + room[words - 1]; \
    }
FUNCTION(a, 2) FUNCTION(b, 5) FUNCTION(c, 9) FUNCTION(d, 14) FUNCTION(e, 20) FUNCTION(f, 3) FUNCTION(g, 30)
/* Its frame is found by the frame pointer. */
__attribute__((noinline)) static void h(int depth, int path, int leaf) {
    volatile char *room = __builtin_alloca(16 + path % 64);
    room[0] = 1;
    go(depth, path, leaf);
    sink += room[0];
}
static Function *const functions[KINDS] = {a, b, c, d, e, f, g, h};

static int layers;
static void step(void) {
    for (int layer = 0; layer < layers; layer++)
        for (int k = 0; k < 8; k++) go(8 + (k * 5 + layer) % 17, layer % 4 * 5 + k, layer * 8 + k);
    while (count > 0) announce(blocks[--count], -512);
}

__attribute__((noinline)) static void base(int depth, long steps) {
    if (depth > 0) {
        base(depth - 1, steps);
        sink++;
        return;
    }
    while (steps-- > 0) step();
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    layers = atoi(argv[2]);
    if (layers * 8 > MOST) return 2;
    base(atoi(argv[1]), WARM);
    events = 0;
    base(atoi(argv[1]), atol(argv[3]));
    printf("%llu\n", (unsigned long long)events);
    return 0;
}
#endif

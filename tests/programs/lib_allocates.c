/* A library that allocates: built twice under two names of its function, so that both lie at the same addresses when
   one is loaded after the other. Without frame pointers, as distributions build. */
#include <stddef.h>

typedef int Allocate(unsigned long long *, size_t);

__attribute__((noinline)) int NAME(Allocate *allocate, unsigned long long *address, size_t bytes) {
    volatile char room[64 + SIZE];
    room[0] = room[sizeof room - 1] = 0;
    int result = allocate(address, bytes);
    return result + room[0];
}

int (*entry)(Allocate *, unsigned long long *, size_t) = NAME;

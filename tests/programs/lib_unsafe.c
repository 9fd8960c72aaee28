/* The allocator that must not be: a freed block is handed out again at once, whatever the device still does with it.
   Preloaded in tests that show that the oracle would have noticed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
enum { SLOTS = 4096 };
static struct { unsigned long long address; size_t bytes; int used; } slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *real(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name); }
int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    static int (*allocate)(unsigned long long *, size_t);
    if (!allocate) *(void **)&allocate = real("cuMemAlloc_v2");
    pthread_mutex_lock(&lock);
    int empty = -1;
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].address && !slots[i].used && slots[i].bytes == bytes) {
            slots[i].used = 1;
            *address = slots[i].address;
            pthread_mutex_unlock(&lock);
            return 0;
        }
        if (!slots[i].address && empty < 0) empty = i;
    }
    int result = allocate(address, bytes);
    if (result == 0 && empty >= 0) {
        slots[empty].address = *address;
        slots[empty].bytes = bytes;
        slots[empty].used = 1;
    }
    pthread_mutex_unlock(&lock);
    return result;
}
int cuMemFree_v2(unsigned long long address) {
    static int (*free_)(unsigned long long);
    if (!free_) *(void **)&free_ = real("cuMemFree_v2");
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].address == address && slots[i].used) {
            slots[i].used = 0;
            pthread_mutex_unlock(&lock);
            return 0;
        }
    pthread_mutex_unlock(&lock);
    return free_(address);
}

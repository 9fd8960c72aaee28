/* The pools that must not be, preloaded in tests that show that `stream_stress` would have noticed. UNSAFE=order: a block
   freed on one stream is handed out on any other at once. UNSAFE=live: now and then a block is handed out twice. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Address;
enum { SLOTS = 4096, EACH = 16 };
static struct { Address address; size_t bytes; int device, users; } slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name, args) \
    static int (*name) args; \
    if (!name) *(void **)&name = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cu" #name)

static int hands_out_live(void) {
    const char *how = getenv("UNSAFE");
    return how && !strcmp(how, "live");
}

static int captures(void *stream) {
    REAL(StreamIsCapturing, (void *, int *));
    int status = 0;
    return StreamIsCapturing(stream, &status) || status;
}

int cuMemAllocAsync(Address *address, size_t bytes, void *stream) {
    REAL(MemAllocAsync, (Address *, size_t, void *));
    REAL(CtxGetDevice, (int *));
    static unsigned calls;
    int device = -1, empty = -1, wanted = hands_out_live();
    size_t room = 512;
    if (!bytes || bytes > 64 << 20 || captures(stream)) return MemAllocAsync(address, bytes, stream);
    while (room < bytes) room *= 2;
    CtxGetDevice(&device);
    pthread_mutex_lock(&lock);
    int looks = !wanted || ++calls % EACH == 0;
    for (int i = 0; i < SLOTS; i++) {
        if (!slots[i].address && empty < 0) empty = i;
        if (looks && slots[i].address && slots[i].users == wanted && slots[i].bytes == room && slots[i].device == device) {
            slots[i].users++;
            *address = slots[i].address;
            pthread_mutex_unlock(&lock);
            return 0;
        }
    }
    int result = MemAllocAsync(address, empty < 0 ? bytes : room, stream);
    if (result == 0 && empty >= 0) {
        slots[empty].address = *address, slots[empty].bytes = room;
        slots[empty].device = device, slots[empty].users = 1;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whether the block is kept for others; else it is for the driver to free. */
static int keeps(Address address) {
    int kept = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; address && i < SLOTS; i++)
        if (slots[i].address == address) {
            slots[i].users--;
            kept = slots[i].users > 0 || !hands_out_live();
            if (!kept) slots[i].address = 0;
        }
    pthread_mutex_unlock(&lock);
    return kept;
}

int cuMemFreeAsync(Address address, void *stream) {
    REAL(MemFreeAsync, (Address, void *));
    return !captures(stream) && keeps(address) ? 0 : MemFreeAsync(address, stream);
}

int cuMemFreeAsync_ptsz(Address address, void *stream) {
    REAL(MemFreeAsync_ptsz, (Address, void *));
    return keeps(address) ? 0 : MemFreeAsync_ptsz(address, stream);
}

int cuMemFree_v2(Address address) {
    REAL(MemFree_v2, (Address));
    return keeps(address) ? 0 : MemFree_v2(address);
}

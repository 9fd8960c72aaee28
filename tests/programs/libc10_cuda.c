/* Plays libc10_cuda.so: an allocator that cuts segments of cudaMalloc up and announces each tensor, as PyTorch's own does.
   A segment is of the stream that is current when it is asked for, and serves that one only. A block is free as soon as it
   is freed. With TORCH_EXPANDS set, a segment is reserved addresses: 20 MiB each are mapped where a tensor needs them, and
   unmapped in free blocks. */
#include "../conformance/conformance.h"
#include "cudart.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int8_t type, index; } Device;
/* In PyTorch it is libc10.so's. */
void report(void *, int64_t, uint64_t, uint64_t, Device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
__attribute__((noinline)) void report(void *at, int64_t bytes, uint64_t allocated, uint64_t reserved, Device device) {
    __asm__ volatile("" : : "r"(at), "r"(bytes), "r"(allocated), "r"(reserved), "r"((int)device.type));
}

enum { SEGMENTS = 64, BLOCKS = 128, UNIT = 512, LARGE = 10 << 20, SEGMENT = 20 << 20, PAGE = 2 << 20, STREAMS = 32 };
enum { PARTS = 32, RESERVED = PARTS * SEGMENT };
enum { FREE, USED, UNMAPPED };
typedef struct { size_t at, bytes; int used; } Block;
typedef struct {
    char *base; size_t bytes; int64_t stream; int is_private, count; Block block[BLOCKS];
    CUhandle part[PARTS];
} Segment;
static Segment segments[SEGMENTS];
static int count, is_private;
static uint64_t live, reserved, error;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The stream of a thread: 0 the default one, else 1 + its index, 4 bits higher up, as PyTorch's ids have it. */
static _Thread_local int64_t current;
static void *streams[STREAMS];

void torch_stream(int index, void *handle) {
    if (handle) streams[index] = handle;
    current = handle ? (int64_t)(index + 1) << 4 : 0;
}

#ifndef WITHOUT_STREAMS
typedef struct { Device device; int64_t id; } Stream;
Stream current_stream(int8_t device) __asm__("_ZN3c104cuda20getCurrentCUDAStreamEa");
Stream current_stream(int8_t device) { return (Stream){{1, device}, current}; }
void *stream_handle(const Stream *) __asm__("_ZNK3c104cuda10CUDAStream6streamEv");
void *stream_handle(const Stream *stream) { return stream->id ? streams[(stream->id >> 4) - 1] : 0; }
#endif

/* From here on tensors are of a graph's own segments, or no longer. */
void torch_private(int yes) { is_private = yes; }

/* The next sum of live bytes that is announced is wrong by so much. */
void torch_error(uint64_t bytes) { error = bytes; }

static void announce(void *at, int64_t bytes) {
    live += bytes;
    report(at, bytes, live + error, reserved, (Device){1, 0});
    error = 0;
}

/* Shortens a block; the rest is a block of its own, behind it. */
static void split(Segment *s, int i, size_t bytes) {
    Block *b = &s->block[i];
    if (b->bytes == bytes) return;
    memmove(b + 2, b + 1, (s->count - i - 1) * sizeof *b);
    b[1] = (Block){b->at + bytes, b->bytes - bytes, b->used};
    b->bytes = bytes;
    s->count++;
}

/* Joins free blocks, and unmapped ones. */
static void merge(Segment *s) {
    for (int j = s->count - 1; j > 0; j--) {
        if (s->block[j].used == USED || s->block[j].used != s->block[j - 1].used) continue;
        s->block[j - 1].bytes += s->block[j].bytes;
        memmove(&s->block[j], &s->block[j + 1], (s->count - j - 1) * sizeof(Block));
        s->count--;
    }
}

static int expands(void) { return getenv("TORCH_EXPANDS") != NULL; }

#define CALL(name, ...) ((int (*)())dlsym(RTLD_DEFAULT, #name))(__VA_ARGS__)

/* Maps the first bytes of an unmapped block, or nothing. */
static int map(Segment *s, int i, size_t bytes) {
    AllocationProp prop = {.type = 1, .handles = 1, .location = {1, 0}};
    AccessDesc access = {{1, 0}, 3};
    CUdeviceptr at = (CUdeviceptr)s->base + s->block[i].at;
    int first = s->block[i].at / SEGMENT, parts = bytes / SEGMENT;
    for (int k = 0; k < parts; k++) {
        if (!CALL(cuMemCreate, &s->part[first + k], (size_t)SEGMENT, &prop, 0ull)) continue;
        while (k-- > 0) CALL(cuMemRelease, s->part[first + k]);
        return 0;
    }
    for (int k = 0; k < parts; k++)
        if (CALL(cuMemMap, at + k * (size_t)SEGMENT, (size_t)SEGMENT, (size_t)0, s->part[first + k], 0ull)) abort();
    if (CALL(cuMemSetAccess, at, bytes, &access, (size_t)1)) abort();
    split(s, i, bytes);
    s->block[i].used = FREE;
    reserved += bytes;
    merge(s);
    return 1;
}

/* Maps more of the segment of a stream, so that a free block has these bytes. */
static Segment *expand(size_t bytes) {
    Segment *s = segments;
    while (s < segments + count && (s->stream != current || s->is_private != is_private)) s++;
    if (s == segments + count) {
        CUdeviceptr base = 0;
        if (CALL(cuMemAddressReserve, &base, (size_t)RESERVED, (size_t)0, 0ull, 0ull)) return NULL;
        *s = (Segment){.base = (char *)base, .bytes = RESERVED, .stream = current, .is_private = is_private, .count = 1,
                       .block = {{0, RESERVED, UNMAPPED}}};
        count++;
    }
    for (int i = 0; i < s->count; i++) {
        Block *b = &s->block[i];
        size_t before = i && b[-1].used == FREE ? b[-1].bytes : 0;
        size_t more = (bytes - before + SEGMENT - 1) / SEGMENT * SEGMENT;
        if (b->used == UNMAPPED && b->bytes >= more) return map(s, i, more) ? s : NULL;
    }
    return NULL;
}

static void unmap(Segment *s, int i) {
    size_t from = (s->block[i].at + SEGMENT - 1) / SEGMENT * SEGMENT;
    size_t end = (s->block[i].at + s->block[i].bytes) / SEGMENT * SEGMENT;
    if (from >= end) return;
    cudaDeviceSynchronize();
    for (size_t at = from; at < end; at += SEGMENT) {
        if (CALL(cuMemUnmap, (CUdeviceptr)s->base + at, (size_t)SEGMENT)) abort();
        if (CALL(cuMemRelease, s->part[at / SEGMENT])) abort();
    }
    reserved -= end - from;
    if (from > s->block[i].at) {
        split(s, i, from - s->block[i].at);
        i++;
    }
    split(s, i, end - from);
    s->block[i].used = UNMAPPED;
}

static void empty(void) {
    for (int i = 0; i < count; i++) {
        Segment *s = &segments[i];
        if (s->is_private) continue;
        for (int k = 0; expands() && k < s->count; k++)
            if (s->block[k].used == FREE) unmap(s, k);
        merge(s);
        if (s->count != 1 || s->block[0].used == USED) continue;
        if (expands()) {
            if (CALL(cuMemAddressFree, (CUdeviceptr)s->base, s->bytes)) abort();
        } else {
            reserved -= s->bytes;
            cudaFree(s->base);
        }
        segments[i--] = segments[--count];
    }
}

/* A descriptor of a mapped part of the first segment, as PyTorch makes for another process. */
int torch_share(int part) {
    int file = -1;
    int result = CALL(cuMemExportToShareableHandle, &file, segments[0].part[part], 1u, 0ull);
    return result ? -result : file;
}

/* Number of new parts that there can be at a time. */
int torch_parts(void) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    CUhandle part[PARTS];
    int n = 0, left;
    while (n < PARTS && !CALL(cuMemCreate, &part[n], (size_t)SEGMENT, &prop, 0ull)) n++;
    for (left = n; left > 0; left--) CALL(cuMemRelease, part[left - 1]);
    return n;
}

/* Maps a new part in wrong ways, of which the driver refuses each, then as it must be, and gives its handle back. */
void torch_handles(int code[6]) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    size_t bytes[] = {0, PAGE, SEGMENT + PAGE, SEGMENT, SEGMENT}, offset[] = {0, 0, 0, PAGE, 0};
    CUdeviceptr at = 0;
    CUhandle part = 0;
    if (CALL(cuMemAddressReserve, &at, (size_t)2 * SEGMENT, (size_t)0, 0ull, 0ull)) abort();
    if (CALL(cuMemCreate, &part, (size_t)SEGMENT, &prop, 0ull)) abort();
    for (int i = 0; i < 5; i++) code[i] = CALL(cuMemMap, at, bytes[i], offset[i], part, 0ull);
    code[5] = CALL(cuMemRelease, part);
}

/* Gives segments back in which nothing lives. */
void torch_empty(void) {
    pthread_mutex_lock(&lock);
    empty();
    pthread_mutex_unlock(&lock);
}

static Segment *grow(size_t bytes) {
    Segment *s = &segments[count];
    void *base = NULL;
    if (count == SEGMENTS || cudaMalloc(&base, bytes)) {
        cudaGetLastError();
        return NULL;
    }
    *s = (Segment){
        .base = base, .bytes = bytes, .stream = current, .is_private = is_private, .count = 1, .block = {{0, bytes, 0}}};
    count++;
    reserved += bytes;
    return s;
}

static void *cut(Segment *s, size_t bytes) {
    for (int i = 0; i < s->count; i++) {
        Block *b = &s->block[i];
        if (b->used || b->bytes < bytes || s->count == BLOCKS) continue;
        split(s, i, bytes);
        b->used = USED;
        announce(s->base + b->at, bytes);
        return s->base + b->at;
    }
    return NULL;
}

static void *allocate(size_t bytes) {
    for (int i = 0; i < count; i++) {
        Segment *s = &segments[i];
        void *found = s->is_private == is_private && s->stream == current ? cut(s, bytes) : NULL;
        if (found) return found;
    }
    size_t wanted = bytes < LARGE ? SEGMENT : (bytes + PAGE - 1) / PAGE * PAGE;
    Segment *s = expands() ? expand(bytes) : grow(wanted);
    if (!s) {
        empty();
        s = expands() ? expand(bytes) : grow(wanted);
    }
    return s ? cut(s, bytes) : NULL;
}

void *torch_malloc(size_t bytes) {
    pthread_mutex_lock(&lock);
    void *made = allocate((bytes + UNIT - 1) / UNIT * UNIT);
    pthread_mutex_unlock(&lock);
    return made;
}

static void take_back(void *address) {
    for (int i = 0; i < count; i++) {
        Segment *s = &segments[i];
        for (int k = 0; k < s->count; k++) {
            Block *b = &s->block[k];
            if (b->used != USED || s->base + b->at != address) continue;
            int64_t bytes = b->bytes;
            b->used = FREE;
            merge(s);
            announce(address, -bytes);
            return;
        }
    }
}

void torch_free(void *address) {
    pthread_mutex_lock(&lock);
    take_back(address);
    pthread_mutex_unlock(&lock);
}

/* As PyTorch does without its cache: nothing is announced. */
void *torch_uncached(size_t bytes) {
    void *at = NULL;
    int result = cudaMalloc(&at, bytes);
    return result ? NULL : at;
}

uint64_t torch_reserved(void) { return reserved; }

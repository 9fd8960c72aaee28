/* Which streams stream-ordered allocation takes, and what happens to it when streams, contexts and processes end.
   Argument: the part. */
#include "streams.h"
#include <sys/wait.h>

/* Allocates on one stream, frees on another; a note says what is to be in the trace. */
static void both(const char *what, CUstream at, uint64_t at_number, CUstream from, uint64_t from_number, size_t bytes) {
    CUdeviceptr block = 0;
    CUevent event = NULL;
    OK(cuEventCreate(&event, 2));
    printf("%s: allocate %d", what, cuMemAllocAsync(&block, bytes, at));
    OK(touch(at, block, bytes, 1, 100000));
    OK(cuEventRecord(event, at));
    OK(cuStreamWaitEvent(from, event, 0));
    printf(", free %d\n", cuMemFreeAsync(block, from));
    printf("# block %llu %zu %llu\n", (unsigned long long)at_number, bytes, (unsigned long long)from_number);
    OK(cuEventDestroy_v2(event));
}

static void trace(void) {
    CUstream side = side_stream(), other = side_stream();
    uint64_t s = (uint64_t)(uintptr_t)side, o = (uint64_t)(uintptr_t)other;
    both("one stream", side, s, side, s, 1000);
    both("two streams", side, s, other, o, 3 * MIB);
    both("legacy", NULL, 0, LEGACY, 1, 5000);
    both("per thread", PER_THREAD, 2, PER_THREAD, 2, 70000);
    CUdeviceptr block = 0;
    printf("per thread by entry point: allocate %d", cuMemAllocAsync_ptsz(&block, 2000, NULL));
    printf(", free %d\n", cuMemFreeAsync_ptsz(block, NULL));
    printf("# block 2 2000 2\n");
    OK(cuCtxSynchronize());
}

/* A thread's default stream is its own: blocks that one frees there are another's only in order. */
static void *on_a_thread(void *context) {
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 50; i++) {
        CUdeviceptr block = 0, again = 0;
        OK(i % 2 ? cuMemAllocAsync_ptsz(&block, 300000, NULL) : cuMemAllocAsync(&block, 300000, PER_THREAD));
        OK(touch(PER_THREAD, block, 300000, 1, 200000));
        OK(i % 3 ? cuMemFreeAsync_ptsz(block, NULL) : cuMemFreeAsync(block, PER_THREAD));
        OK(cuMemAllocAsync_ptsz(&again, 300000, NULL));
        OK(touch(PER_THREAD, again, 300000, 1, 1000));
        OK(cuMemFreeAsync_ptsz(again, NULL));
    }
    return NULL;
}

static void threads(CUcontext context) {
    pthread_t thread[4];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) OK(pthread_create(&thread[i], NULL, on_a_thread, context));
        for (int i = 0; i < 4; i++) OK(pthread_join(thread[i], NULL));
    }
    OK(cuCtxSynchronize());
    printf("used %llu, reserved %llu\n", attribute(default_pool(0), USED_NOW), attribute(default_pool(0), RESERVED_NOW));
}

/* Handles that are no stream (any more) are refused, and no block is lost by it. */
static void invalid(void) {
    CUdeviceptr block = 77, other = 0;
    CUstream gone = side_stream(), side = side_stream(), never = (CUstream)0x12345600;
    OK(cuMemAllocAsync(&block, 4096, gone));
    OK(touch(gone, block, 4096, 1, 300000));
    OK(cuStreamDestroy_v2(gone));
    SAY("allocate on a destroyed stream", cuMemAllocAsync(&other, 4096, gone));
    SAY("allocate on no stream", cuMemAllocAsync(&other, 4096, never));
    SAY("from a pool", cuMemAllocFromPoolAsync(&other, 4096, default_pool(0), never));
    SAY("free on a destroyed stream", cuMemFreeAsync(block, gone));
    SAY("free on no stream", cuMemFreeAsync(block, never));
    OK(cuCtxSynchronize());
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
    SAY("free on another", cuMemFreeAsync(block, side));
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
    OK(cuStreamSynchronize(side));
}

/* Streams end while their work runs and with blocks freed on them; new ones take their place. */
static void destroyed(void) {
    for (int i = 0; i < 60; i++) {
        CUstream first = side_stream(), second = side_stream();
        CUdeviceptr block[4], next_block = 0;
        for (int k = 0; k < 4; k++) {
            OK(cuMemAllocAsync(&block[k], (size_t)(k + 1) * MIB, first));
            OK(touch(first, block[k], (size_t)(k + 1) * MIB, 1, 200000));
            OK(cuMemFreeAsync(block[k], first));
        }
        OK(cuStreamDestroy_v2(first));
        OK(cuMemAllocAsync(&next_block, 4 * MIB, second));
        OK(touch(second, next_block, 4 * MIB, 1, 1000));
        OK(cuMemFreeAsync(next_block, second));
        OK(cuStreamDestroy_v2(second));
    }
    OK(cuCtxSynchronize());
    printf("used %llu, reserved %llu\n", attribute(default_pool(0), USED_NOW), attribute(default_pool(0), RESERVED_NOW));
}

static void no_context(CUcontext context) {
    CUdeviceptr block = 0, other = 0;
    OK(cuMemAllocAsync(&block, 4096, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuCtxSetCurrent(NULL));
    SAY("allocate", cuMemAllocAsync(&other, 4096, NULL));
    SAY("allocate by thread", cuMemAllocAsync_ptsz(&other, 4096, NULL));
    SAY("from a pool", cuMemAllocFromPoolAsync(&other, 4096, default_pool(0), LEGACY));
    SAY("free", cuMemFreeAsync(block, NULL));
    SAY("free of null", cuMemFreeAsync(0, NULL));
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
    SAY("free by cuMemFree", cuMemFree_v2(block));
    printf("used %llu\n", attribute(default_pool(0), USED_NOW));
    OK(cuCtxSetCurrent(context));
    SAY("allocate", cuMemAllocAsync(&other, 4096, NULL));
    SAY("free", cuMemFreeAsync(other, NULL));
    OK(cuCtxSynchronize());
}

/* The primary context is reset with blocks out and blocks freed. What a real driver does with the old block's address
   afterwards is not known: a note. */
static void reset(CUcontext context) {
    for (int round = 0; round < 3; round++) {
        CUstream side = side_stream();
        CUdeviceptr block[6];
        for (int i = 0; i < 6; i++) {
            OK(cuMemAllocAsync(&block[i], 3 * MIB, side));
            OK(touch(side, block[i], 3 * MIB, 1, 100000));
        }
        for (int i = 0; i < 4; i++) OK(cuMemFreeAsync(block[i], side));
        OK(cuCtxSynchronize());
        SAY("reset", cuDevicePrimaryCtxReset_v2(0));
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        side = side_stream();
        SAY("# free of a block of before", cuMemFreeAsync(block[5], side));
        for (int i = 0; i < 20; i++) {
            CUdeviceptr fresh = 0;
            unsigned char byte = 0;
            OK(cuMemAllocAsync(&fresh, 3 * MIB, side));
            OK(touch(side, fresh, 3 * MIB, 1, 1000));
            OK(cuMemsetD8Async(fresh + 3 * MIB - 1, (unsigned char)i, 1, side));
            OK(cuMemcpyDtoHAsync_v2(&byte, fresh + 3 * MIB - 1, 1, side));
            OK(cuMemFreeAsync(fresh, side));
            OK(cuStreamSynchronize(side));
            TRUE(byte == i);
        }
    }
    printf("done\n");
}

/* A child of fork has no CUDA; its parent goes on. */
static void forks(void) {
    CUstream side = side_stream();
    CUdeviceptr block = 0, other = 0;
    OK(cuMemAllocAsync(&block, 4096, side));
    for (int i = 0; i < 3; i++) {
        int status = 0;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            printf("child: allocate %d", cuMemAllocAsync(&other, 4096, side));
            printf(", free %d", cuMemFreeAsync(block, side));
            printf(", by cuMemFree %d\n", cuMemFree_v2(block));
            fflush(stdout);
            _exit(7);
        }
        TRUE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        OK(cuMemAllocAsync(&other, 3 * MIB, side));
        OK(touch(side, other, 3 * MIB, 1, 1000));
        OK(cuMemFreeAsync(other, side));
    }
    OK(cuMemFreeAsync(block, side));
    OK(cuStreamSynchronize(side));
    printf("parent: used %llu\n", attribute(default_pool(0), USED_NOW));
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    CUcontext context = start_streams();
    if (!strcmp(argv[1], "trace")) trace();
    if (!strcmp(argv[1], "threads")) threads(context);
    if (!strcmp(argv[1], "invalid")) invalid();
    if (!strcmp(argv[1], "destroyed")) destroyed();
    if (!strcmp(argv[1], "no-context")) no_context(context);
    if (!strcmp(argv[1], "reset")) reset(context);
    if (!strcmp(argv[1], "forks")) forks();
    return 0;
}

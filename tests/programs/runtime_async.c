/* A program on a shared cudart: stream-ordered memory by all six functions, on the default streams, a stream of its own
   and from a pool; what one round frees, the next ones get again. */
#include "cudart.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void *Handle;
int cudaStreamCreate(Handle *), cudaStreamSynchronize(Handle), cudaStreamDestroy(Handle);
int cudaMemsetAsync(void *, int, size_t, Handle), cudaMemsetAsync_ptsz(void *, int, size_t, Handle);
int cudaMallocAsync(void **, size_t, Handle), cudaMallocAsync_ptsz(void **, size_t, Handle);
int cudaMallocFromPoolAsync(void **, size_t, Handle, Handle), cudaMallocFromPoolAsync_ptsz(void **, size_t, Handle, Handle);
int cudaFreeAsync(void *, Handle), cudaFreeAsync_ptsz(void *, Handle);
int cudaDeviceGetDefaultMemPool(Handle *, int), cudaMemPoolSetAttribute(Handle, int, void *), cudaMemPoolGetAttribute(Handle, int, void *);

enum { BYTES = 300000, RELEASE_THRESHOLD = 4, USED = 7 };

int main(void) {
    Handle pool = NULL, stream = NULL;
    uint64_t all = UINT64_MAX;
    void *block = (void *)1;
    printf("pool: %d\n", cudaDeviceGetDefaultMemPool(&pool, 0));
    printf("threshold: %d\n", cudaMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &all));
    printf("stream: %d\n", cudaStreamCreate(&stream));
    printf("nothing: %d\n", cudaMallocAsync(&block, 0, stream));
    printf("nowhere: %d, last error: %d\n", cudaMallocAsync(NULL, BYTES, stream), cudaGetLastError());
    printf("too much: %d, last error: %d\n", cudaMallocAsync(&block, (size_t)1 << 44, stream), cudaGetLastError());
    for (int round = 0; round < 4; round++) {
        void *blocks[6];
        int wrong = 0, failed = 0;
        Handle on[6] = {NULL, stream, NULL, NULL, stream, NULL};
        failed += cudaMallocAsync(&blocks[0], BYTES, on[0]);
        failed += cudaMallocAsync(&blocks[1], BYTES, on[1]);
        failed += cudaMallocAsync_ptsz(&blocks[2], BYTES, on[2]);
        failed += cudaMallocFromPoolAsync(&blocks[3], BYTES, pool, on[3]);
        failed += cudaMallocFromPoolAsync(&blocks[4], BYTES, pool, on[4]);
        failed += cudaMallocFromPoolAsync_ptsz(&blocks[5], BYTES, pool, on[5]);
        for (int i = 0; i < 6; i++) failed += (i % 3 == 2 ? cudaMemsetAsync_ptsz : cudaMemsetAsync)(blocks[i], 16 * round + i, BYTES, on[i]);
        printf("synchronize: %d\n", cudaDeviceSynchronize());
        for (int i = 0; i < 6; i++) {
            static unsigned char bytes[BYTES];
            failed += cudaMemcpy(bytes, blocks[i], sizeof bytes, 2);
            for (size_t k = 0; k < sizeof bytes; k++) wrong += bytes[k] != 16 * round + i;
        }
        for (int i = 0; i < 6; i++) failed += (i % 3 == 2 ? cudaFreeAsync_ptsz : cudaFreeAsync)(blocks[i], on[i]);
        uint64_t used = 1;
        failed += cudaMemPoolGetAttribute(pool, USED, &used);
        printf("failed: %d, wrong bytes: %d, used: %llu\n", failed, wrong, (unsigned long long)used);
        if (round == 3) printf("free again: %d, last error: %d\n", cudaFreeAsync(blocks[1], stream), cudaGetLastError());
    }
    printf("synchronize: %d, destroy: %d\n", cudaStreamSynchronize(stream), cudaStreamDestroy(stream));
    return 0;
}

/* The promise that reuse must keep: work submitted before a free is done with the block before
 * anyone else's work begins. Threads with non-blocking streams of their own allocate, fill, verify
 * and free without ever synchronising, as native code may because cudaFree waits. A kernel that
 * finds another's bytes in its block counts a mismatch; it must be zero. */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <thread>
#include <vector>

static std::atomic<unsigned long> allocations, frees;

static void check(cudaError_t code, const char *what)
{
    if (code != cudaSuccess) {
        printf("failed %s %s\n", what, cudaGetErrorName(code));
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

__global__ void fill(unsigned *out, size_t count, unsigned tag)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = tag + (unsigned)i;
}

/* Time for another thread to take the block, should it be handed out too early. */
__global__ void linger(long cycles)
{
    long start = clock64();
    while (clock64() - start < cycles)
        ;
}

__global__ void verify(const unsigned *in, size_t count, unsigned tag, unsigned long long *mismatches)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        if (in[i] != tag + (unsigned)i)
            atomicAdd(mismatches, 1ull);
}

static void work(unsigned thread, unsigned turns, unsigned long long *mismatches)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    unsigned random = thread * 7919 + 1;
    for (unsigned turn = 0; turn < turns; turn++) {
        random = random * 1664525u + 1013904223u;
        /* Few sizes, so that blocks go from thread to thread. */
        size_t count = (size_t)1024 << (random >> 28) % 11;
        unsigned *block;
        CHECK(cudaMalloc(&block, count * sizeof(unsigned)));
        allocations++;
        unsigned tag = (thread << 24) ^ (turn << 4);
        fill<<<32, 256, 0, stream>>>(block, count, tag);
        linger<<<1, 1, 0, stream>>>(20000 + (random >> 16 & 0xffff));
        verify<<<32, 256, 0, stream>>>(block, count, tag, mismatches);
        CHECK(cudaFree(block));
        frees++;
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    unsigned threads = argc > 1 ? atoi(argv[1]) : 6, turns = argc > 2 ? atoi(argv[2]) : 2000;
    unsigned long long *mismatches, result = 0;
    CHECK(cudaMalloc(&mismatches, sizeof *mismatches));
    allocations++;
    CHECK(cudaMemset(mismatches, 0, sizeof *mismatches));
    CHECK(cudaDeviceSynchronize());
    std::vector<std::thread> all;
    for (unsigned thread = 0; thread < threads; thread++)
        all.emplace_back(work, thread, turns, mismatches);
    for (auto &thread : all)
        thread.join();
    CHECK(cudaMemcpy(&result, mismatches, sizeof result, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(mismatches));
    frees++;
    printf("mismatches %llu\n", result);
    printf("cudaMalloc %lu cudaFree %lu\n", allocations.load(), frees.load());
    return result != 0;
}

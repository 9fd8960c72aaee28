/* cudaMallocAsync and cudaFreeAsync on two streams with events between them: what one frees the other
 * gets, sizes vary, the pool is trimmed now and then. Small, for a memory checker. Prints checksums. */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

static void check(cudaError_t code, const char *what)
{
    if (code != cudaSuccess) {
        printf("failed %s %s\n", what, cudaGetErrorName(code));
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

__global__ void fill(unsigned *out, size_t count, unsigned seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = (unsigned)i * 2654435761u + seed;
}

__global__ void add(unsigned *sum, const unsigned *in, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        atomicAdd(sum, in[i]);
}

int main()
{
    cudaStream_t streams[2];
    cudaEvent_t events[2];
    cudaMemPool_t pool;
    for (int i = 0; i < 2; i++) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
    }
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    unsigned *sum, random = 1;
    CHECK(cudaMallocAsync(&sum, sizeof *sum, streams[0]));
    CHECK(cudaMemsetAsync(sum, 0, sizeof *sum, streams[0]));
    CHECK(cudaStreamSynchronize(streams[0]));
    std::vector<unsigned *> kept;
    for (unsigned turn = 0; turn < 120; turn++) {
        random = random * 1664525u + 1013904223u;
        size_t count = 1 + (random >> 12) % 700000;
        int here = turn % 2, there = 1 - here;
        unsigned *block;
        CHECK(cudaMallocAsync(&block, count * sizeof *block, streams[here]));
        fill<<<16, 128, 0, streams[here]>>>(block, count, turn);
        CHECK(cudaEventRecord(events[here], streams[here]));
        CHECK(cudaStreamWaitEvent(streams[there], events[here], 0));
        add<<<16, 128, 0, streams[there]>>>(sum, block, count);
        if (turn % 5 == 0)
            kept.push_back(block);
        else
            CHECK(cudaFreeAsync(block, streams[there]));
        if (turn % 30 == 29) {
            for (unsigned *old : kept)
                CHECK(cudaFreeAsync(old, streams[there]));
            kept.clear();
            CHECK(cudaStreamSynchronize(streams[there]));
            CHECK(cudaMemPoolTrimTo(pool, 0));
            unsigned host;
            CHECK(cudaMemcpyAsync(&host, sum, sizeof host, cudaMemcpyDeviceToHost, streams[there]));
            CHECK(cudaStreamSynchronize(streams[there]));
            printf("turn %u sum %u\n", turn, host);
        }
    }
    for (unsigned *old : kept)
        CHECK(cudaFreeAsync(old, streams[0]));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeAsync(sum, streams[0]));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}

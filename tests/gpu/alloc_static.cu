/* Allocation calls of the CUDA runtime, one after another; built with a static cudart (nvcc's
 * default) and again with `-cudart shared`. Prints codes, checksums and its own number of calls. */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

static unsigned long allocations, frees;

static void check(cudaError_t code, const char *what)
{
    if (code != cudaSuccess) {
        printf("failed %s %s\n", what, cudaGetErrorName(code));
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static void *take(size_t bytes)
{
    void *address = nullptr;
    CHECK(cudaMalloc(&address, bytes));
    allocations++;
    return address;
}

static void give(void *address)
{
    CHECK(cudaFree(address));
    frees++;
}

__global__ void fill(unsigned *out, size_t count, unsigned seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = (unsigned)i * 2654435761u + seed;
}

static unsigned long checksum(const unsigned *device, size_t count)
{
    std::vector<unsigned> host(count);
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
    unsigned long sum = 0;
    for (unsigned value : host)
        sum = sum * 31 + value;
    return sum;
}

int main()
{
    /* Each line at once, so that a crash shows where it was. */
    setvbuf(stdout, NULL, _IOLBF, 0);

    /* Many sizes, several live at once, freed in another order. */
    std::vector<unsigned *> live;
    for (unsigned turn = 0; turn < 200; turn++) {
        size_t count = 1 + (turn * 7919u) % 300000;
        unsigned *block = (unsigned *)take(count * sizeof(unsigned));
        fill<<<64, 256>>>(block, count, turn);
        if (turn % 10 == 0)
            printf("fill %u %lx\n", turn, checksum(block, count));
        live.push_back(block);
        if (live.size() > 6) {
            give(live[turn % 5]);
            live.erase(live.begin() + turn % 5);
        }
    }
    for (unsigned *block : live)
        give(block);

    /* Edges. */
    void *address = (void *)1;
    printf("malloc 0: %s %s\n", cudaGetErrorName(cudaMalloc(&address, 0)), address ? "pointer" : "null");
    printf("free null: %s\n", cudaGetErrorName(cudaFree(nullptr)));
    printf("malloc huge: %s\n", cudaGetErrorName(cudaMalloc(&address, (size_t)1 << 44)));
    printf("last error: %s\n", cudaGetErrorName(cudaGetLastError()));
    void *twice = take(4096);
    give(twice);
    printf("double free: %s\n", cudaGetErrorName(cudaFree(twice)));
    (void)cudaGetLastError();

    /* The other kinds of memory. */
    size_t pitch = 0;
    CHECK(cudaMallocPitch(&address, &pitch, 1000, 20));
    CHECK(cudaMemset2D(address, pitch, 7, 1000, 20));
    printf("pitch %zu %s\n", pitch, cudaGetErrorName(cudaFree(address)));
    cudaPitchedPtr volume;
    CHECK(cudaMalloc3D(&volume, make_cudaExtent(100, 10, 5)));
    printf("3d %zu %s\n", volume.pitch, cudaGetErrorName(cudaFree(volume.ptr)));
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocArray(&array, &format, 64, 64));
    printf("array %s\n", cudaGetErrorName(cudaFreeArray(array)));
    CHECK(cudaMallocHost(&address, 1 << 20));
    printf("host %s\n", cudaGetErrorName(cudaFreeHost(address)));
    /* Not touched by the host: not every machine lets it. */
    CHECK(cudaMallocManaged(&address, 1 << 20));
    CHECK(cudaDeviceSynchronize());
    printf("managed %s\n", cudaGetErrorName(cudaFree(address)));
    CHECK(cudaMallocAsync(&address, 1 << 20, 0));
    CHECK(cudaMemsetAsync(address, 1, 1 << 20, 0));
    printf("async %s\n", cudaGetErrorName(cudaFreeAsync(address, 0)));

    /* What pointers say of themselves. */
    char *block = (char *)take(3 << 20);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, block + 4096));
    printf("attributes type %d device %d same %d\n", (int)attributes.type, attributes.device,
           attributes.devicePointer == block + 4096);
    size_t free_before = 0, free_after = 0, total = 0;
    CHECK(cudaMemGetInfo(&free_before, &total));
    char *large = (char *)take((size_t)512 << 20);
    CHECK(cudaMemGetInfo(&free_after, &total));
    printf("info total %zu, 512 MiB less: %d\n", total, free_before - free_after == (size_t)512 << 20);
    give(large);
    CHECK(cudaMemGetInfo(&free_after, &total));
    printf("info back: %d\n", free_after == free_before);
    give(block);

    CHECK(cudaDeviceReset());
    unsigned *after = (unsigned *)take(1000 * sizeof(unsigned));
    fill<<<4, 256>>>(after, 1000, 9);
    printf("after reset %lx\n", checksum(after, 1000));
    give(after);
    CHECK(cudaDeviceSynchronize());
    printf("cudaMalloc %lu cudaFree %lu\n", allocations, frees);
    return 0;
}

/* Memory of one process read by another through a legacy IPC handle, before and after blocks of
 * the same size were cached: the importer must see the exporter's bytes. */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

static void check(cudaError_t code, const char *what)
{
    if (code != cudaSuccess) {
        printf("failed %s %s\n", what, cudaGetErrorName(code));
        fflush(stdout);
        _exit(1);
    }
}
#define CHECK(call) check(call, #call)

static const size_t COUNT = 300000;

__global__ void fill(unsigned *out, size_t count, unsigned seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = (unsigned)i * 2654435761u + seed;
}

static unsigned long checksum(const unsigned *device)
{
    std::vector<unsigned> host(COUNT);
    CHECK(cudaMemcpy(host.data(), device, COUNT * sizeof(unsigned), cudaMemcpyDeviceToHost));
    unsigned long sum = 0;
    for (unsigned value : host)
        sum = sum * 31 + value;
    return sum;
}

static int importer(int from, int to)
{
    cudaIpcMemHandle_t handle;
    while (read(from, &handle, sizeof handle) == (ssize_t)sizeof handle) {
        void *address;
        CHECK(cudaIpcOpenMemHandle(&address, handle, cudaIpcMemLazyEnablePeerAccess));
        unsigned long sum = checksum((unsigned *)address);
        CHECK(cudaIpcCloseMemHandle(address));
        if (write(to, &sum, sizeof sum) != (ssize_t)sizeof sum)
            return 1;
    }
    return 0;
}

int main()
{
    int there[2], back[2];
    if (pipe(there) || pipe(back))
        return 1;
    pid_t child = fork(); /* before either process has touched CUDA */
    if (child == 0) {
        close(there[1]);
        _exit(importer(there[0], back[1]));
    }
    close(there[0]);
    close(back[1]);
    for (unsigned turn = 0; turn < 6; turn++) {
        unsigned *block, *other;
        CHECK(cudaMalloc(&other, COUNT * sizeof(unsigned)));
        CHECK(cudaMalloc(&block, COUNT * sizeof(unsigned)));
        CHECK(cudaFree(other));
        fill<<<64, 256>>>(block, COUNT, turn);
        CHECK(cudaDeviceSynchronize());
        cudaIpcMemHandle_t handle;
        CHECK(cudaIpcGetMemHandle(&handle, block));
        unsigned long seen = 0;
        if (write(there[1], &handle, sizeof handle) != (ssize_t)sizeof handle || read(back[0], &seen, sizeof seen) != (ssize_t)sizeof seen) {
            printf("the importer is gone\n");
            return 1;
        }
        printf("turn %u %lx equal %d\n", turn, seen, seen == checksum(block));
        CHECK(cudaFree(block));
    }
    close(there[1]);
    int status = 1;
    waitpid(child, &status, 0);
    printf("importer %d\n", WEXITSTATUS(status));
    return 0;
}

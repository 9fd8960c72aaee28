// PyTorch's own caching allocator, allocate+free in C++, beside which our pair is measured: without
// Python in between. Loaded by torch_pair.py into a process that has imported torch.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <chrono>
#include <vector>

/// The median over batches of the time of one pair, in ns; `live` blocks of mixed sizes stay
/// allocated meanwhile.
extern "C" double torch_pair_ns(long bytes, long live, long batches)
{
    const int batch = 64;
    std::vector<void *> kept;
    for (long i = 0; i < live; i++)
        kept.push_back(c10::cuda::CUDACachingAllocator::raw_alloc(512 + (i * 7919 % 4096) * 1024));
    std::vector<double> times;
    for (long turn = 0; turn < batches; turn++) {
        auto from = std::chrono::steady_clock::now();
        for (int i = 0; i < batch; i++)
            c10::cuda::CUDACachingAllocator::raw_delete(c10::cuda::CUDACachingAllocator::raw_alloc(bytes));
        std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - from;
        times.push_back(spent.count() / batch);
    }
    for (void *block : kept)
        c10::cuda::CUDACachingAllocator::raw_delete(block);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

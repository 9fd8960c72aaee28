// PyTorch's own caching allocator, allocate+free in C++, beside which our pair is measured: without
// Python in between. Loaded by torch_pair.py into a process that has imported torch.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "live_blocks.h"

#include <algorithm>
#include <chrono>
#include <vector>

using c10::cuda::CUDACachingAllocator::raw_alloc;
using c10::cuda::CUDACachingAllocator::raw_delete;
using Clock = std::chrono::steady_clock;

static double ns_since(Clock::time_point from)
{
    return std::chrono::duration<double, std::nano>(Clock::now() - from).count();
}

/// The median over batches of the time of one pair, in ns; `live` blocks of mixed sizes stay
/// allocated meanwhile.
extern "C" double torch_pair_ns(long bytes, long live, long batches)
{
    const int batch = 64;
    std::vector<void *> kept;
    for (long i = 0; i < live; i++)
        kept.push_back(raw_alloc(512 + (i * 7919 % 4096) * 1024));
    std::vector<double> times;
    for (long turn = 0; turn < batches; turn++) {
        auto from = Clock::now();
        for (int i = 0; i < batch; i++)
            raw_delete(raw_alloc(bytes));
        times.push_back(ns_since(from) / batch);
    }
    for (void *block : kept)
        raw_delete(block);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/// What async_pair.c measures, of this allocator: `result` receives p50, p99 and mean of a pair in ns.
extern "C" void torch_pair_live(long live, long pairs, double *result)
{
    lb_random random = {(uint64_t)live};
    std::vector<void *> blocks(2 * live);
    std::vector<size_t> sizes(2 * live), asked;
    size_t spent = 0;
    for (long i = 0; i < 2 * live; i++) {
        sizes[i] = lb_size(&random, spent);
        spent += sizes[i];
        blocks[i] = raw_alloc(sizes[i]);
    }
    for (long i = 0; i < 2 * live; i += 2) {
        long gone = i + (lb_next(&random) & 1);
        raw_delete(blocks[gone]);
        blocks[gone] = nullptr;
        asked.push_back(sizes[gone]);
    }
    std::vector<uint32_t> order(1 << 16);
    for (auto &one : order)
        one = lb_next(&random) % asked.size();

    auto from = Clock::now();
    uint64_t first = lb_ticks();
    while (ns_since(from) < 2e7)
        ;
    double scale = ns_since(from) / double(lb_ticks() - first);
    for (int i = 0; i < 10000; i++)
        raw_delete(raw_alloc(asked[order[i]]));
    std::vector<float> singles(PAIR_SINGLES);
    for (int i = 0; i < PAIR_SINGLES; i++) {
        size_t bytes = asked[order[i & 0xffff]];
        uint64_t before = lb_ticks();
        raw_delete(raw_alloc(bytes));
        singles[i] = float(double(lb_ticks() - before) * scale);
    }
    from = Clock::now();
    for (long i = 0; i < pairs; i++)
        raw_delete(raw_alloc(asked[order[i & 0xffff]]));
    result[2] = ns_since(from) / double(pairs);
    result[0] = lb_percentile(singles.data(), singles.size(), 0.5);
    result[1] = lb_percentile(singles.data(), singles.size(), 0.99);
    for (void *block : blocks)
        if (block)
            raw_delete(block);
}

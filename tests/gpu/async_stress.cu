/* The promise of stream-ordered memory, under many threads: whoever holds a block finds in it what was
 * written there in the order of the streams, and never another's bytes.
 *
 *   async_stress [--threads 8] [--seconds 30] [--broken]
 *
 * Each thread has streams of its own, allocates blocks of random sizes, fills each with a tag of its own,
 * uses it on other streams after an event, hands some to other threads, frees on whichever stream is
 * ordered last, trims, and destroys streams. A kernel that finds another value in its block counts a
 * mismatch; there must be none. `--broken` leaves out the wait before a block is used on another stream, to
 * show that mismatches are seen. The pool keeps its memory in the first half and gives it back at each
 * synchronisation in the second. Standard output is the same in every run; what was done is on stderr.
 */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <mutex>
#include <thread>
#include <vector>

static void check(cudaError_t code, const char *what)
{
    if (code != cudaSuccess) {
        printf("failed %s %s\n", what, cudaGetErrorName(code));
        fflush(stdout);
        _Exit(1);
    }
}
#define CHECK(call) check(call, #call)

__global__ void fill(unsigned *out, size_t count, unsigned tag)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = tag + (unsigned)i;
}

/* Time for another to take the block, should it be handed out too early. */
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

enum { STREAMS = 3, MOST_LIVE = 24 };

/* A block, and the event after its last use: whoever frees it elsewhere waits for that. */
struct Block {
    unsigned *address;
    size_t count;
    unsigned tag;
    cudaEvent_t last;
};

static std::mutex exchange_lock;
static std::vector<Block> exchange; /* blocks on their way to another thread */
static std::atomic<unsigned long> made, freed, crossed, handed, tags;
static std::atomic<bool> over;
static unsigned long long *mismatches;
static bool broken;

struct Worker {
    cudaStream_t streams[STREAMS];
    std::vector<Block> live;
    unsigned long long state;

    unsigned random(unsigned below)
    {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return (unsigned)(state >> 33) % below;
    }

    /* Elements: mostly up to 4 MiB; one block in 50 up to 64 MiB. */
    size_t size()
    {
        unsigned top = random(50) ? 12 : 16;
        return ((size_t)512 << random(top)) + random(2000);
    }

    void use(Block &block, cudaStream_t stream)
    {
        if (random(4) == 0 || broken)
            linger<<<1, 1, 0, stream>>>(20000 + random(100000));
        verify<<<32, 256, 0, stream>>>(block.address, block.count, block.tag, mismatches);
    }

    void make()
    {
        Block block = {nullptr, size(), (unsigned)(++tags * 2654435761u), nullptr};
        cudaStream_t stream = streams[random(STREAMS)];
        CHECK(cudaEventCreateWithFlags(&block.last, cudaEventDisableTiming));
        CHECK(cudaMallocAsync(&block.address, block.count * sizeof(unsigned), stream));
        fill<<<32, 256, 0, stream>>>(block.address, block.count, block.tag);
        use(block, stream);
        CHECK(cudaEventRecord(block.last, stream));
        live.push_back(block);
        made++;
    }

    /* Uses a block on some stream, after its last use; in turns its contents change. */
    void touch(Block &block)
    {
        cudaStream_t stream = streams[random(STREAMS)];
        CHECK(cudaStreamWaitEvent(stream, block.last, 0));
        use(block, stream);
        if (random(2)) {
            block.tag = (unsigned)(++tags * 2654435761u);
            fill<<<32, 256, 0, stream>>>(block.address, block.count, block.tag);
        }
        CHECK(cudaEventRecord(block.last, stream));
        crossed++;
    }

    /* Frees a block on some stream, after its last use. */
    void drop(Block &block)
    {
        cudaStream_t stream = streams[random(STREAMS)];
        if (broken) {
            /* Used on one stream, freed on another without a wait: another thread may have it too early. */
            use(block, streams[random(STREAMS)]);
        } else {
            CHECK(cudaStreamWaitEvent(stream, block.last, 0));
            use(block, stream);
        }
        CHECK(cudaFreeAsync(block.address, stream));
        CHECK(cudaEventDestroy(block.last));
        freed++;
    }

    Block take(size_t index)
    {
        Block block = live[index];
        live[index] = live.back();
        live.pop_back();
        return block;
    }

    void trade()
    {
        std::lock_guard<std::mutex> hold(exchange_lock);
        if (exchange.size() < 64 && !live.empty() && random(2)) {
            exchange.push_back(take(random((unsigned)live.size())));
            handed++;
        } else if (!exchange.empty()) {
            live.push_back(exchange.back());
            exchange.pop_back();
        }
    }

    void rare(cudaMemPool_t pool)
    {
        unsigned which = random(4);
        cudaStream_t &stream = streams[random(STREAMS)];
        if (which == 0) {
            CHECK(cudaStreamSynchronize(stream));
        } else if (which == 1) {
            CHECK(cudaMemPoolTrimTo(pool, (size_t)random(512) << 20));
        } else if (which == 2 && stream != cudaStreamPerThread && stream != cudaStreamLegacy) {
            /* A stream ends with work in flight and blocks that were freed on it. */
            CHECK(cudaStreamDestroy(stream));
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        } else {
            CHECK(cudaDeviceSynchronize());
        }
    }

    void run(unsigned number, cudaMemPool_t pool)
    {
        state = number * 7919 + 1;
        for (auto &stream : streams)
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        /* Some threads work on their default streams, too. */
        cudaStream_t created = streams[0];
        if (number % 4 == 1)
            streams[0] = cudaStreamPerThread;
        else if (number % 4 == 2)
            streams[0] = cudaStreamLegacy;
        if (streams[0] != created)
            CHECK(cudaStreamDestroy(created));
        while (!over) {
            unsigned what = random(1000);
            if (what < 5 && !broken)
                rare(pool);
            else if (what < 100)
                trade();
            else if (live.size() < 4 || (what < 450 && live.size() < MOST_LIVE))
                make();
            else if (what < 700)
                touch(live[random((unsigned)live.size())]);
            else {
                Block block = take(random((unsigned)live.size()));
                drop(block);
            }
            CHECK(cudaPeekAtLastError());
        }
        for (auto &block : live)
            drop(block);
        for (auto &stream : streams)
            CHECK(cudaStreamSynchronize(stream));
    }
};

static void keep(cudaMemPool_t pool, unsigned long long threshold)
{
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

int main(int argc, char **argv)
{
    unsigned threads = 8;
    double seconds = 30;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--broken"))
            broken = true;
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
            seconds = atof(argv[++i]);
        else
            return 2;
    }
    CHECK(cudaMalloc(&mismatches, sizeof *mismatches));
    CHECK(cudaMemset(mismatches, 0, sizeof *mismatches));
    CHECK(cudaDeviceSynchronize());
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    keep(pool, ~0ull);
    std::vector<Worker> workers(threads);
    std::vector<std::thread> all;
    for (unsigned i = 0; i < threads; i++)
        all.emplace_back([&workers, i, pool] { workers[i].run(i, pool); });
    auto half = std::chrono::duration<double>(seconds / 2);
    std::this_thread::sleep_for(half);
    keep(pool, 0);
    std::this_thread::sleep_for(half);
    over = true;
    for (auto &thread : all)
        thread.join();
    for (auto &block : exchange) {
        CHECK(cudaStreamWaitEvent(0, block.last, 0));
        CHECK(cudaFreeAsync(block.address, 0));
        freed++;
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolTrimTo(pool, 0));
    unsigned long long result = 0, used = 1, most = 0;
    CHECK(cudaMemcpy(&result, mismatches, sizeof result, cudaMemcpyDeviceToHost));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &most));
    fprintf(stderr, "made %lu freed %lu used elsewhere %lu handed over %lu, held at most %llu MiB, mismatches %llu\n",
            made.load(), freed.load(), crossed.load(), handed.load(), most >> 20, result);
    printf("%s\n", result ? "mismatches" : "no mismatches");
    printf("used at the end %llu, all freed %d\n", used, made.load() == freed.load());
    return result != 0 || used != 0;
}

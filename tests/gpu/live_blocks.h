/* Blocks of mixed sizes that live while a pair of calls is timed: the same ones in C over the driver
 * (async_pair.c) and in C++ over PyTorch's allocator (torch_pair.cpp). */
#ifndef LIVE_BLOCKS_H
#define LIVE_BLOCKS_H
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { PAIR_SINGLES = 100000 };

struct lb_random {
    uint64_t state;
};

/* A random number below 2^31 (Knuth's MMIX constants). */
static inline uint32_t lb_next(struct lb_random *random)
{
    random->state = random->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random->state >> 33);
}

/* Bytes from 100 to 64 MiB, each power of two as likely as another; at most 1 MiB once 16 GiB are spent,
 * so that 20,000 of them fit into 20 GiB. */
static inline size_t lb_size(struct lb_random *random, size_t spent)
{
    double most = spent < ((size_t)16 << 30) ? 67108864.0 : 1048576.0;
    double share = lb_next(random) / 2147483648.0;
    return (size_t)(100.0 * exp(share * log(most / 100.0)));
}

/* The time stamp counter. What reading it costs is in every single measurement: nothing is subtracted. */
static inline uint64_t lb_ticks(void)
{
    return __builtin_ia32_rdtsc();
}

static int lb_ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The p-th part of the samples is below the result. Sorts them. */
static inline double lb_percentile(float *samples, size_t count, double p)
{
    qsort(samples, count, sizeof *samples, lb_ascending);
    return count ? samples[(size_t)(p * (double)(count - 1))] : 0;
}
#endif

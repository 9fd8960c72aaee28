"""CuPy: recordings of ever different lengths are smoothed and summed up. No two of them have the same length."""
import random

import cupy as cp

RECORDINGS, SHORTEST, LONGEST, TAPS = 60, 400_000, 3_000_000, 9


def lengths(count):
    rng = random.Random(83)
    return [rng.randrange(SHORTEST, LONGEST) for _ in range(count)]


def smooth(signal):
    """Moving average of TAPS samples by a running sum."""
    total = cp.cumsum(signal - 0.5)
    return (total[TAPS:] - total[:-TAPS]) / TAPS


def features(signal):
    calm = smooth(signal)
    above = calm > 0
    crossings = cp.count_nonzero(above[1:] != above[:-1])
    return calm.mean(), calm.std(), crossings.astype(cp.float32)


class Summary:
    def __init__(self):
        self.count = 0
        self.sums = cp.zeros(3, dtype=cp.float32)

    def add(self, values):
        self.sums += cp.stack([cp.asarray(value, dtype=cp.float32) for value in values])
        self.count += 1

    def result(self):
        return [float(value) for value in cp.asnumpy(self.sums / self.count)]


def main():
    pool, summary = cp.get_default_memory_pool(), Summary()
    used, reserved = [], []
    for length in lengths(RECORDINGS):
        signal = cp.random.random(length, dtype=cp.float32)
        summary.add(features(signal))
        del signal
        cp.cuda.Device().synchronize()
        used.append(pool.used_bytes())
        reserved.append(pool.total_bytes())
    print("mean, deviation, crossings:", summary.result())
    print(f"the pool had {reserved[0] >> 20} MiB after the first, {reserved[RECORDINGS // 2] >> 20} MiB half-way, "
          f"{reserved[-1] >> 20} MiB at the end")
    half = RECORDINGS // 2
    rate = (used[-1] - used[half]) // (RECORDINGS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={max(used)} reserved={pool.total_bytes()}")


main()

"""numba: arrays of another length each step, with copies in and out. Sums on stdout, step times in `--json`."""

import random
import time

from common import arguments, emit, median, restore_numpy_names, write_figures

import numpy

restore_numpy_names(numpy)
from numba import cuda

options = arguments(steps=60, warmup=5, longest=8_000_000, kept=6)
mixed = random.Random(11)


@cuda.jit
def add(a, b, out):
    at = cuda.grid(1)
    if at < out.size:
        out[at] = a[at] + 2 * b[at]


host = numpy.arange(options.longest, dtype=numpy.int32)
kept, times = [], []
for number in range(options.warmup + options.steps):
    length = mixed.randrange(1000, options.longest)
    start = time.perf_counter()
    a, b = cuda.to_device(host[:length]), cuda.to_device(host[-length:])
    out = cuda.device_array(length, dtype=numpy.int32)
    add[(length + 255) // 256, 256](a, b, out)
    kept.append(out)
    if len(kept) > options.kept:
        del kept[mixed.randrange(len(kept))]
    total = int(out[length // 2 : length // 2 + 100].copy_to_host().sum())
    cuda.synchronize()
    times.append((time.perf_counter() - start) * 1e3)
    emit("sum", number, total)
write_figures(options.json, {"median_step_ms": median(times[options.warmup:])})

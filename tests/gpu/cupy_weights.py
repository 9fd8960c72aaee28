"""CuPy with its pool off, as a program that serves a language model uses memory: weights in large blocks, a cache of
keys and values that grows by chunks, and a buffer for the computation that each prompt makes anew. Sums on stdout, times
in `--json`: that of loading is `load_ms`, a step is a prompt."""

import random
import time

from common import arguments, emit, median, write_figures

import cupy

options = arguments(steps=60, warmup=5, gib=14, prompts=12)
cupy.cuda.set_allocator(None)
MIB = 1 << 20
mixed = random.Random(10)


def block(bytes_, value):
    """Memory that was written."""
    array = cupy.empty(bytes_ // 4, dtype=cupy.int32)
    array.fill(value)
    return array


cupy.zeros(1)
cupy.cuda.runtime.deviceSynchronize()
start = time.perf_counter()
sizes, left = [], options.gib * 1024
while left > 0:
    sizes.append(min(left, mixed.choice([58, 112, 224, 448, 896])))
    left -= sizes[-1]
weights = [block(size * MIB, at) for at, size in enumerate(sizes)]
cupy.cuda.runtime.deviceSynchronize()
load = (time.perf_counter() - start) * 1e3

cache, times = [], []
for number in range(options.warmup + options.steps):
    start = time.perf_counter()
    if number % options.prompts == 0:
        cache.clear()
    cache.append(block(mixed.randrange(16, 96) * MIB, number))
    buffers = [block(mixed.randrange(1, 160) * MIB, number + at) for at in range(4)]
    total = sum(int(one[:1000].sum()) for one in [*buffers, *cache])
    del buffers
    cupy.cuda.runtime.deviceSynchronize()
    times.append((time.perf_counter() - start) * 1e3)
    emit("prompt", number, total)
emit("weights", sum(int(one[-1]) for one in weights))
write_figures(options.json, {"median_step_ms": median(times[options.warmup:]), "load_ms": load})

"""CuPy over its stream-ordered allocator (`malloc_async`), on two streams with events between them."""

from common import arguments, digest, emit

import cupy

options = arguments(steps=30)
cupy.cuda.set_allocator(cupy.cuda.malloc_async)
streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
for step in range(options.steps):
    count = 1000 * (step % 12 + 1) ** 2 + 3
    first, second = streams[step % 2], streams[1 - step % 2]
    with first:
        a = cupy.arange(count, dtype=cupy.float64)
        b = cupy.sqrt(a) * 2 + a[::-1]
        done = first.record()
    with second:
        second.wait_event(done)
        c = cupy.cumsum(b.astype(cupy.int64))
        total = c[-1] + b.size
        done = second.record()
    # What the second stream reads is freed on the first, after it.
    first.wait_event(done)
    second.synchronize()
    emit("sums", step, digest(cupy.asnumpy(c)), int(total))
    with first:
        del a, b
    with second:
        del c, total
for stream in streams:
    stream.synchronize()
try:
    cupy.cuda.malloc_async(1 << 44)
    emit("out_of_memory", "none")
except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
    emit("out_of_memory", type(error).__name__)
emit("after", digest(cupy.asnumpy(cupy.arange(1000) * 2)))

"""numba: kernels, device arrays, several streams, memory information."""

from common import arguments, digest, emit, restore_numpy_names

import numpy

restore_numpy_names(numpy)
from numba import cuda

options = arguments()


@cuda.jit
def saxpy(out, a, x, y):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


random = numpy.random.default_rng(5)
streams = [cuda.stream() for _ in range(2)]
for step in range(options.steps):
    n = 500 * (step + 1) ** 2 + 7
    x = random.standard_normal(n).astype(numpy.float32)
    y = random.standard_normal(n).astype(numpy.float32)
    stream = streams[step % 2]
    there_x, there_y = cuda.to_device(x, stream=stream), cuda.to_device(y, stream=stream)
    out = cuda.device_array(n, dtype=numpy.float32, stream=stream)
    saxpy[(n + 127) // 128, 128, stream](out, numpy.float32(2.5), there_x, there_y)
    result = out.copy_to_host(stream=stream)
    stream.synchronize()
    emit("saxpy", n, digest(result), bool(numpy.allclose(result, 2.5 * x + y)))
    del there_x, there_y, out
try:
    cuda.device_array(1 << 44, dtype=numpy.uint8)
    emit("out_of_memory", "none")
except Exception as error:  # The exception's type has moved between numba's releases.
    emit("out_of_memory", "OUT_OF_MEMORY" in str(error))
emit("total", cuda.current_context().get_memory_info().total)

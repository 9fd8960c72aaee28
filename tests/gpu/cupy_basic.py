"""CuPy: with its memory pool, and with every array a driver allocation of its own."""

from common import arguments, digest, emit

import cupy

options = arguments()
cupy.random.seed(4)
fill = cupy.RawKernel(
    r"""extern "C" __global__ void fill(int *out, int n, int k) {
        int i = blockDim.x * blockIdx.x + threadIdx.x;
        if (i < n) out[i] = i * k;
    }""",
    "fill",
)


def work(name):
    for step in range(options.steps):
        n = 1000 * (step + 1) ** 2 + 3
        a = cupy.arange(n, dtype=cupy.float64)
        b = cupy.sqrt(a) * 2 + a[::-1]
        out = cupy.empty(n, dtype=cupy.int32)
        fill(((n + 255) // 256,), (256,), (out, cupy.int32(n), cupy.int32(step)))
        emit(name, step, digest(cupy.asnumpy(b)), digest(cupy.asnumpy(out)), float(a.sum()))


work("pool")
cupy.get_default_memory_pool().free_all_blocks()
cupy.cuda.set_allocator(None)
work("direct")
try:
    cupy.cuda.alloc(1 << 44)
    emit("out_of_memory", "none")
except cupy.cuda.memory.OutOfMemoryError:
    emit("out_of_memory", "caught")
except cupy.cuda.runtime.CUDARuntimeError as error:
    emit("out_of_memory", error.status)
emit("total", cupy.cuda.runtime.memGetInfo()[1])

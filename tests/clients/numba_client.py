"""A numba program, run with and without the shim: its output must not change.

numba finds the driver's functions by dlsym. Arrays there and back, memory information, out of
memory; no kernel, so it also runs on the stand-in driver. The last line counts the allocations."""

import gc

import numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError, Driver

# This numba takes NAME_v2 wherever a driver exports it. Those that CUDA 13 added take a context more
# than it passes, so it must be given the older ones; by dlsym all the same.
NEWER = {"cuCtxGetDevice", "cuCtxSynchronize"}
newest = Driver._find_api
Driver._find_api = lambda self, name: getattr(self.lib, name) if name in NEWER else newest(self, name)

BLOCK = 64 << 20
count = total_bytes = 0


def array(shape, kind):
    """A device array, counted."""
    global count, total_bytes
    made = cuda.device_array(shape, dtype=kind)
    count += 1
    total_bytes += made.nbytes
    return made


def release():
    """Frees what numba has queued: it frees late, to spare the driver's wait."""
    gc.collect()
    cuda.current_context().deallocations.clear()


context = cuda.current_context()
release()
before = context.get_memory_info()
block = array(BLOCK, numpy.uint8)
during = context.get_memory_info()
del block
release()
after = context.get_memory_info()
print("info", before.total, before.free - during.free, after.free == before.free)

random = numpy.random.default_rng(7)
live = []
for turn in range(40):
    data = random.integers(0, 256, 1 + turn * 7919 % 200_000, dtype=numpy.uint8)
    there = array(data.shape, numpy.uint8)
    there.copy_to_device(data)
    live.append((there, data))
    if len(live) > 5:
        there, data = live.pop(turn % 4)
        print("copy", turn, data.size, bool((there.copy_to_host() == data).all()))
        del there
del live
release()

blocks = []
try:
    while True:
        blocks.append(array(BLOCK, numpy.uint8))
except CudaAPIError as error:
    print("blocks until out of memory", len(blocks), error.code)
del blocks
release()
large = context.get_memory_info().free // BLOCK * BLOCK - BLOCK
block = array(large, numpy.uint8)
print("large", block.nbytes)
del block
release()
print("allocations", count, "bytes", total_bytes, "stream-ordered", 0)

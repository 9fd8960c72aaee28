#!/usr/bin/env python3
"""A sample training loop, for tests of packages: the memory side of training, on the CUDA driver alone.

Parameters, gradients and optimiser state live for the whole run. Each step draws one of four batch
sizes, allocates activations on the way forward, frees them on the way back, and queues work on all
of it. Python's standard library and libcuda.so.1 are all it needs, so it runs on any NVIDIA GPU and
on the stand-in driver of tests/standin. The work is a memset: this loop learns nothing.
"""

import argparse
import ctypes
import random
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--batch", type=int, default=48, help="largest batch")
options = parser.parse_args()

cuda = ctypes.CDLL("libcuda.so.1")
driver_calls = {"allocations": 0, "seconds": 0.0}


def call(name, *arguments):
    """A driver call that must succeed."""
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        sys.exit(f"train.py: {name} failed with {code}")


def allocate(size):
    """A device block of `size` bytes; counted and timed."""
    address = ctypes.c_uint64()
    start = time.perf_counter()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    driver_calls["seconds"] += time.perf_counter() - start
    driver_calls["allocations"] += 1
    return address.value, size


def free(block):
    """The block goes back; timed."""
    start = time.perf_counter()
    call("cuMemFree_v2", ctypes.c_uint64(block[0]))
    driver_calls["seconds"] += time.perf_counter() - start


def work(stream, block, value):
    """Stands for a kernel that writes the block; its first part will do, the stand-in writes with a CPU."""
    size = ctypes.c_size_t(min(block[1], 64 << 10))
    call("cuMemsetD8Async", ctypes.c_uint64(block[0]), ctypes.c_ubyte(value), size, stream)


def start():
    """The first device's primary context, made current, and a stream; the device's name."""
    device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    name = ctypes.create_string_buffer(100)
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetName", name, len(name), device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", ctypes.byref(stream), 0)
    return stream, name.value.decode()


def step(stream, weights, batch):
    """Forward, backward, update."""
    tokens = batch * 64
    activations = []
    for weight in weights:
        scratch = allocate(tokens * options.width)
        output = allocate(tokens * options.width * 4)
        work(stream, scratch, 1)
        work(stream, output, 2)
        free(scratch)
        activations.append(output)
    for weight, gradient, _ in reversed(weights):
        slope = allocate(tokens * options.width * 4)
        work(stream, slope, 3)
        work(stream, gradient, 4)
        free(activations.pop())
        free(slope)
    for weight, gradient, moment in weights:
        work(stream, moment, 5)
        work(stream, weight, 6)
    call("cuStreamSynchronize", stream)


stream, name = start()
size = options.width * options.width * 4
weights = [(allocate(size), allocate(size), allocate(size)) for _ in range(options.layers)]
sizes = [options.batch * part // 4 for part in (1, 2, 3, 4)]
batches = random.Random(8)
began = time.perf_counter()
for _ in range(options.steps):
    step(stream, weights, batches.choice(sizes))
elapsed = time.perf_counter() - began
calls = driver_calls["allocations"]
print(f"{name}: {options.steps} steps, {calls} allocations, {elapsed / options.steps * 1e3:.2f} ms a step, "
      f"{driver_calls['seconds'] / calls * 1e6:.2f} us in each allocate+free (Python's own cost included)")
for group in weights:
    for block in group:
        free(block)

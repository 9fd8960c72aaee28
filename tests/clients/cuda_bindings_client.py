"""A program on NVIDIA's cuda-bindings, run with and without the shim: its output must not change.

cuda-bindings finds the driver's functions by cuGetProcAddress. The last line counts the
allocations."""

import ctypes

from cuda.bindings import driver

BLOCK = 64 << 20
count = total_bytes = ordered = 0


def call(result):
    """The values of a call that must succeed."""
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"unexpected {code.name}")
    return values[0] if len(values) == 1 else values


def allocate(size):
    """cuMemAlloc, counted; the code and the address."""
    global count, total_bytes
    code, address = driver.cuMemAlloc(size)
    if code == driver.CUresult.CUDA_SUCCESS:
        count += 1
        total_bytes += size
    return code, address


call(driver.cuInit(0))
device = call(driver.cuDeviceGet(0))
context = call(driver.cuDevicePrimaryCtxRetain(device))
call(driver.cuCtxSetCurrent(context))
print("devices", call(driver.cuDeviceGetCount()), "total", call(driver.cuDeviceTotalMem(device)))

before, total = call(driver.cuMemGetInfo())
_, block = allocate(BLOCK)
during, _ = call(driver.cuMemGetInfo())
call(driver.cuMemFree(block))
after, _ = call(driver.cuMemGetInfo())
print("info", total, before - during, after == before)

live = []
for turn in range(40):
    data = bytes((i * 31 + turn * 17) & 0xFF for i in range(1 + turn * 7919 % 20_000))
    code, address = allocate(len(data))
    call(driver.cuMemcpyHtoD(address, data, len(data)))
    live.append((address, data))
    if len(live) > 5:
        address, data = live.pop(turn % 4)
        back = ctypes.create_string_buffer(len(data))
        call(driver.cuMemcpyDtoH(ctypes.addressof(back), address, len(data)))
        print("copy", turn, len(data), back.raw == data)
        call(driver.cuMemFree(address))
for address, _ in live:
    call(driver.cuMemFree(address))

stream = call(driver.cuStreamCreate(0))
for turn in range(10):
    address = call(driver.cuMemAllocAsync(4096 * (turn + 1), stream))
    ordered += 1
    call(driver.cuMemsetD8Async(address, turn, 4096, stream))
    back = ctypes.create_string_buffer(4096)
    call(driver.cuMemcpyDtoHAsync(ctypes.addressof(back), address, 4096, stream))
    call(driver.cuMemFreeAsync(address, stream))
    call(driver.cuStreamSynchronize(stream))
    print("ordered", turn, back.raw == bytes([turn]) * 4096)
call(driver.cuStreamDestroy(stream))

blocks = []
while True:
    code, address = allocate(BLOCK)
    if code != driver.CUresult.CUDA_SUCCESS:
        break
    blocks.append(address)
print("blocks until out of memory", len(blocks), code.name)
for address in blocks:
    call(driver.cuMemFree(address))
free, _ = call(driver.cuMemGetInfo())
large = free // BLOCK * BLOCK - BLOCK
code, address = allocate(large)
print("large", large, code.name)
call(driver.cuMemFree(address))
print("huge", allocate(1 << 44)[0].name)
print("free null", driver.cuMemFree(0)[0].name)
print("allocations", count, "bytes", total_bytes, "stream-ordered", ordered)

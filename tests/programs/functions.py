"""Allocations under Python functions whose names the test knows, on the CUDA driver alone."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
ALLOCATE = cuda.cuMemAlloc_v2


def check(code):
    if code != 0:
        raise SystemExit(f"CUDA error {code}")


def allocate(size):
    address = ctypes.c_uint64()
    check(ALLOCATE(ctypes.byref(address), ctypes.c_size_t(size)))
    return address.value


class Layer:
    def forward(self, size):
        return allocate(size)


def train():
    layer = Layer()
    for step in range(3):
        layer.forward(3_000_000 + step)


def main():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    train()


main()

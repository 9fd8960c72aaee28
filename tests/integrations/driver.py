"""Device memory for programs of these tests, by the driver alone."""

import ctypes
import json
import sys

MIB = 1 << 20


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, (name, code)


def start():
    global cuda
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    # The trace begins with the first allocation: a mark before it would be lost.
    call("cuMemFree_v2", allocate(1))


def allocate(size):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address


def step():
    """Keeps 1 MiB, and uses 4 MiB more meanwhile."""
    scratch = allocate(4 * MIB)
    allocate(MIB)
    call("cuMemFree_v2", scratch)


class Cuda:
    """PyTorch's module for CUDA, which says that its allocator holds 3 MiB."""

    is_initialized = staticmethod(lambda: True)
    current_device = staticmethod(lambda: 0)
    memory_reserved = staticmethod(lambda device: 3 * MIB)


def play_torch():
    """Has a program without a GPU look like one whose PyTorch uses CUDA."""
    if "torch" in sys.modules:
        for name in ("is_initialized", "current_device", "memory_reserved"):
            setattr(sys.modules["torch"].cuda, name, getattr(Cuda, name))
    else:
        sys.modules["torch"] = type(sys)("torch")
        sys.modules["torch"].cuda = Cuda


def tell(found):
    """Hands a result to the test."""
    print("FOUND " + json.dumps(found), flush=True)

"""What test_python.py runs: a program that uses the driver and the package."""

import ctypes
import sys
import time

import gpushim


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


def allocate(size):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address


def free(block):
    call("cuMemFree_v2", block)


def keep(size):
    return allocate(size)


@gpushim.range("forward")
def forward():
    return [allocate(8192), allocate(8192)]


def train():
    start()
    kept = [allocate(1000)]
    for _ in range(12):
        with gpushim.range("step"):
            scratch = forward()
            kept.append(keep(4096))
            for block in scratch:
                free(block)


def plain():
    print("preloaded", gpushim.is_preloaded(), gpushim.library_version())
    print("stats", gpushim.stats(), gpushim.usage())
    gpushim.reset_peak()
    gpushim.mark("here")
    before = gpushim.is_recording()
    gpushim.pause()
    print("recording", before, gpushim.is_recording())
    gpushim.record()
    with gpushim.range("a"), gpushim.range("b\0c\u20ac"):
        print("value", 7)


def peaks():
    gpushim.reset_peak()
    start()
    allocate(1000)
    free(allocate(50000))
    used = gpushim.usage()
    print(f"in use {used.in_use}, peak {used.peak}")
    gpushim.reset_peak()
    print(f"reset {gpushim.usage().peak}")
    used = gpushim.usage("device", 0)
    print(f"in use {used.in_use}, peak {used.peak}")
    print("kinds", *(one.kind for one in gpushim.stats().usage))
    with gpushim.pause():
        within = gpushim.is_recording()
    print(f"paused {within}, then {gpushim.is_recording()}")


def paused():
    start()
    allocate(1000)
    with gpushim.pause():
        block = allocate(2000)
        with gpushim.record():
            allocate(3000)
        allocate(4000)
    free(block)


def cost():
    start()
    allocate(1000)
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        for _ in range(20000):
            with gpushim.range("step"):
                pass
        best = min(best, time.thread_time() - began)
    print(best / 20000 * 1e9)


globals()[sys.argv[1]]()

"""PyTorch with three communicators of NCCL, cuBLAS, cuDNN, a CUDA graph and an extension, of which `--without` names one
that is left out. `--extension` is a library with a function `grow(bytes)`. Figures: what NVML says of this process.

PyTorch's cache is filled at the beginning and stays as it is, so that what is left out shows in the memory outside it."""

import ctypes
import os
import time

from common import arguments, emit, write_figures

options = arguments(without="", extension="", nodes=4000)
MIB = 1 << 20
CACHE = 1024 * MIB


def is_on(name):
    """Whether a part runs."""
    return name != options.without


class Process(ctypes.Structure):
    """`nvmlProcessInfo_t` since NVML 11."""

    _fields_ = [
        ("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint),
    ]


def by_nvml(torch):
    """Bytes that this process uses, as NVML says; None where it does not list it, as in some containers."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
    device, count, found = ctypes.c_void_p(), ctypes.c_uint(64), (Process * 64)()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(device)):
        return None
    if nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found):
        return None
    own = [one.bytes for one in found[: count.value] if one.pid == os.getpid()]
    return sum(own) if own else None


def main():
    import torch
    import torch.distributed as dist

    x = torch.ones(CACHE // 4, device="cuda")
    del x
    inputs = torch.randn(64, 32, 64, 64, device="cuda")
    square = torch.randn(2048, 2048, device="cuda")
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    second, third = dist.new_group([0]), dist.new_group([0])
    token = torch.ones(1, device="cuda")
    if is_on("nccl-1"):
        dist.all_reduce(token)
    if is_on("nccl-2"):
        dist.all_reduce(token, group=second)
    if is_on("nccl-3"):
        dist.all_reduce(token, group=third)
    if is_on("cublas"):
        torch.mm(square, square)
    if is_on("cudnn"):
        torch.nn.functional.conv2d(inputs, torch.ones(64, 32, 3, 3, device="cuda"), padding=1)
    graph = torch.cuda.CUDAGraph()
    kept = torch.ones(MIB, device="cuda")
    torch.zeros(MIB, device="cuda").add_(1)
    if is_on("graph"):
        # NCCL's watchdog asks about events meanwhile, on a thread of its own.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            large = torch.zeros(64 * MIB // 4, device="cuda")
            for _ in range(options.nodes):
                kept.add_(1)
            large.add_(1)
        graph.replay()
    if is_on("extension"):
        library = ctypes.CDLL(options.extension)
        library.grow.argtypes = [ctypes.c_size_t]
        emit("grow", library.grow(300 * MIB))
    torch.cuda.synchronize()
    # The driver's figures are asked once a second, NVML's every ten.
    time.sleep(1.5)
    free, total = torch.cuda.mem_get_info()
    figures = {"nvml": by_nvml(torch), "device": total - free}
    write_figures(options.json, figures)
    emit("done", float(token))
    time.sleep(0.5)
    os._exit(0)


main()

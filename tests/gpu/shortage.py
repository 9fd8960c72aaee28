"""Runs out of device memory on purpose, for the reason that is named, on a GPU of 40 GiB or more.

    tests/gpu/shortage.py CAUSE [--advised | --thread | --uncaught]

With `--advised` the program does what `gpushim oom` advises against the cause, as far as that is a change of the
program; with `--thread` memory runs out in a thread of its own, and with `--uncaught` the error ends the program. The
last line of output says whether memory ran out."""

import ctypes
import os
import subprocess
import sys
import threading

import torch

GIB = 1 << 30


def whole():
    """All memory of the device, bytes."""
    return torch.cuda.get_device_properties(0).total_memory


def take(gib):
    """A tensor of so many GiB."""
    return torch.empty(int(gib * GIB), dtype=torch.uint8, device="cuda")


def too_large(advised):
    return take((0.5 if advised else 2) * whole() / GIB)


def limit(advised):
    """With GPUSHIM_LIMIT=4096M, or with the one that is advised."""
    return [take(1) for _ in range(5)]


def fraction(advised):
    torch.cuda.set_per_process_memory_fraction(1.0 if advised else 0.05)
    return [take(1) for _ in range(8)]


def growth(advised):
    """A list that is never emptied, by whole iterations."""
    kept = []
    weight = torch.randn(1024, 1024, device="cuda", requires_grad=True)
    for _ in range(10 if advised else 1000):
        output = torch.randn(64 * 1024, 1024, device="cuda") @ weight
        output.square().mean().backward()
        weight.grad = None
        kept.append(output.detach())
    return kept


def pieces(advised):
    """Halves of segments: each of them is free and none is large enough. What the device has besides is taken."""
    # Without it the rest of the device would serve the large request.
    rest = take(whole() / GIB - 24)
    halves, others = [], []
    for _ in range(8):
        segment = take(2)
        del segment
        halves.append(take(1))
        others.append(take(1))
    others.clear()
    return rest, halves, [take(1.5) for _ in range(5)]


def framework(advised):
    """PyTorch's cache holds what another library asks the driver for."""
    cached = [take(1) for _ in range(int(whole() / GIB * 0.8))]
    cached.clear()
    if advised:
        torch.cuda.empty_cache()
    pointer = ctypes.c_void_p()
    code = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(whole() * 0.5)))
    if code:
        raise torch.OutOfMemoryError(f"cuMemAlloc_v2: {code}")
    return pointer


def graphs(advised):
    """The pool of a CUDA graph keeps what the program needs later."""
    graph, large = torch.cuda.CUDAGraph(), 0.6 * whole() / GIB
    with torch.cuda.graph(graph):
        inside = take(large).fill_(1)
        del inside
    if advised:
        del graph
    return take(large)


def streams(advised):
    """A block of another stream's keeps most of its segment free, for that stream alone."""
    large = 0.6 * whole() / GIB
    side = torch.cuda.Stream()
    with torch.cuda.stream(torch.cuda.current_stream() if advised else side):
        first = take(large)
        del first
        small = take(0.1)
    return small, take(large * 0.95)


def others(advised):
    """Another process holds most of the device."""
    large = 0.7 * whole() / GIB
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GPUSHIM_", "LD_PRELOAD"))}
    code = f"import torch; kept = torch.empty({int(large * GIB)}, dtype=torch.uint8, device='cuda'); print('taken', flush=True); input()"
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            other.stdout.readline()
            if advised:
                other.communicate("\n")
            return take(large)
        finally:
            other.kill()


def full(advised):
    """The program needs more than there is, for itself."""
    parts = (0.2, 0.25, 0.3) if advised else (0.4, 0.45, 0.3)
    return [take(part * whole() / GIB) for part in parts]


CAUSES = {
    "too-large": too_large, "our-limit": limit, "framework-limit": fraction, "growth": growth, "fragmentation": pieces,
    "cached-framework": framework, "cached-pool": graphs, "cached-stream": streams, "other-processes": others, "full": full,
}


def main():
    torch.empty(1, device="cuda")
    if "--uncaught" in sys.argv:
        CAUSES[sys.argv[1]](False)
    try:
        kept = CAUSES[sys.argv[1]]("--advised" in sys.argv)
    except torch.OutOfMemoryError:
        print("ran out", flush=True)
    else:
        print("fitted", flush=True)
        del kept


if "--thread" in sys.argv:
    worker = threading.Thread(target=main)
    worker.start()
    worker.join()
else:
    main()

"""Audio is resampled by a C library with stream-ordered memory (here: its memory calls, by ctypes), then classified in PyTorch."""
import ctypes
import ctypes.util

import torch
from torch import nn

CLIPS, SAMPLES, RATIO = 60, 1536 * 1024, 2
TAPS = 256 * 1024


def load_cudart():
    """PyTorch has loaded the runtime library already: take the same file."""
    torch.cuda.init()
    with open("/proc/self/maps") as maps:
        files = {line.split()[-1] for line in maps if "libcudart" in line}
    return ctypes.CDLL(sorted(files)[0] if files else ctypes.util.find_library("cudart") or "libcudart.so")


rt = load_cudart()
rt.cudaMallocAsync.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_void_p]
rt.cudaFreeAsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
rt.cudaMemsetAsync.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
rt.cudaMemcpyAsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
rt.cudaStreamCreate.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
rt.cudaStreamSynchronize.argtypes = [ctypes.c_void_p]
outstanding = {}


def check(code, what):
    if code:
        raise RuntimeError(f"{what}: CUDA error {code}")


def buffer(size, stream):
    pointer = ctypes.c_void_p()
    check(rt.cudaMallocAsync(ctypes.byref(pointer), size, stream), "cudaMallocAsync")
    outstanding[pointer.value] = size
    return pointer


def free(pointer, stream):
    check(rt.cudaFreeAsync(pointer, stream), "cudaFreeAsync")
    del outstanding[pointer.value]


class Resampler:
    def __init__(self):
        self.stream = ctypes.c_void_p()
        check(rt.cudaStreamCreate(ctypes.byref(self.stream)), "cudaStreamCreate")

    def __call__(self, clip):
        size = clip.numel() * 4
        taps = buffer(TAPS * 4, self.stream)
        padded = buffer(size, self.stream)
        output = buffer(size // RATIO, self.stream)
        check(rt.cudaMemsetAsync(taps, 0, TAPS * 4, self.stream), "cudaMemsetAsync")
        check(rt.cudaMemcpyAsync(padded, clip.data_ptr(), size, 3, self.stream), "cudaMemcpyAsync")
        check(rt.cudaMemcpyAsync(output, padded, size // RATIO, 3, self.stream), "cudaMemcpyAsync")
        result = torch.empty(clip.numel() // RATIO, device="cuda")
        check(rt.cudaMemcpyAsync(result.data_ptr(), output, size // RATIO, 3, self.stream), "cudaMemcpyAsync")
        free(taps, self.stream)
        free(padded, self.stream)
        check(rt.cudaStreamSynchronize(self.stream), "cudaStreamSynchronize")
        return result


def main():
    resampler = Resampler()
    classifier = nn.Sequential(nn.Conv1d(1, 16, 64, stride=16), nn.ReLU(), nn.Conv1d(16, 8, 8, stride=8)).cuda().eval()
    held, allocated = [], []
    with torch.no_grad():
        for _ in range(CLIPS):
            audio = resampler(torch.randn(SAMPLES, device="cuda"))
            classifier(audio[None, None]).mean().item()
            held.append(sum(outstanding.values()))
            allocated.append(torch.cuda.memory_allocated())
    half = CLIPS // 2
    rate = (held[-1] - held[half]) // (CLIPS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={max(held)} reserved={torch.cuda.max_memory_reserved()} "
          f"pytorch_growth_per_iter={(allocated[-1] - allocated[half]) // (CLIPS - 1 - half)}")


main()

"""PyTorch's allocator, whichever is in force, ns per allocate+free: in C++ when torch_pair.cpp can be
built, and from Python. Prints JSON. `--build` names the folder to build in, `--cuda` the toolkit's folder."""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--build", default="/tmp")
parser.add_argument("--cuda", default="/usr/local/cuda")
parser.add_argument("--pairs", type=int, default=300000, help="pairs in the mean, at each number of live blocks")
options = parser.parse_args()

import torch

root = os.path.dirname(torch.__file__)
here = os.path.dirname(os.path.abspath(__file__))
library = os.path.join(options.build, "libtorch_pair.so")
figures = {}


def build():
    """Whether the library is there; it is built once."""
    if os.path.exists(library):
        return True
    command = ["g++", "-O2", "-std=c++20", "-shared", "-fPIC", os.path.join(here, "torch_pair.cpp"), "-o", library]
    command += [f"-I{root}/include", f"-I{options.cuda}/include", f"-L{root}/lib", "-lc10", "-lc10_cuda"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(getattr(torch._C, '_GLIBCXX_USE_CXX11_ABI', True))}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    return done.returncode == 0


torch.cuda.init()
torch.ones(1, device="cuda")
if build():
    functions = ctypes.CDLL(library)
    pair = functions.torch_pair_ns
    pair.restype, pair.argtypes = ctypes.c_double, [ctypes.c_long] * 3
    pair(1 << 20, 0, 200)
    figures["cpp_1_mib_ns"] = pair(1 << 20, 0, 2000)
    figures["cpp_1_mib_1000_live_ns"] = pair(1 << 20, 1000, 2000)
    among = functions.torch_pair_live
    among.restype, among.argtypes = None, [ctypes.c_long, ctypes.c_long, ctypes.c_void_p]
    for live in (1, 100, 1000, 10000):
        result = (ctypes.c_double * 3)()
        among(live, options.pairs, result)
        for name, value in zip(("p50", "p99", "mean"), result):
            figures[f"live_{live}_{name}"] = value

allocate = torch.cuda.caching_allocator_alloc
delete = torch.cuda.caching_allocator_delete
times = []
for turn in range(200):
    start = time.perf_counter_ns()
    for _ in range(64):
        delete(allocate(1 << 20))
    times.append((time.perf_counter_ns() - start) / 64)
figures["python_1_mib_ns"] = sorted(times)[len(times) // 2]
print(json.dumps(figures))

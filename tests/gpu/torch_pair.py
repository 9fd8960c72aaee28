"""PyTorch's caching allocator, ns per allocate+free: in C++ when torch_pair.cpp can be built, and
from Python. Prints JSON. `--build` names the folder to build in, `--cuda` the toolkit's folder."""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--build", default="/tmp")
parser.add_argument("--cuda", default="/usr/local/cuda")
options = parser.parse_args()
root = os.path.dirname(torch.__file__)
here = os.path.dirname(os.path.abspath(__file__))
library = os.path.join(options.build, "libtorch_pair.so")
figures = {}

command = ["g++", "-O2", "-std=c++20", "-shared", "-fPIC", os.path.join(here, "torch_pair.cpp"), "-o", library]
command += [f"-I{root}/include", f"-I{options.cuda}/include", f"-L{root}/lib", "-lc10", "-lc10_cuda"]
command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(getattr(torch._C, '_GLIBCXX_USE_CXX11_ABI', True))}"]
built = subprocess.run(command, capture_output=True, text=True, timeout=120)
torch.cuda.init()
torch.ones(1, device="cuda")
if built.returncode == 0:
    pair = ctypes.CDLL(library).torch_pair_ns
    pair.restype = ctypes.c_double
    pair.argtypes = [ctypes.c_long] * 3
    pair(1 << 20, 0, 200)
    figures["cpp_1_mib_ns"] = pair(1 << 20, 0, 2000)
    figures["cpp_1_mib_1000_live_ns"] = pair(1 << 20, 1000, 2000)
else:
    print(built.stderr[-2000:], file=sys.stderr)

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

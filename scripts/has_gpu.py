"""Exit code 0 if this machine has a GPU that the CUDA driver can use, else 1."""

import ctypes
import sys

try:
    cuda = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    found = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
except (OSError, AttributeError):
    found = False
sys.exit(0 if found else 1)

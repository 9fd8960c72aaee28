"""The CUDA driver for the programs here: allocations whose sizes name them, and what Python says of the stack there.

Each recorded line of the output is `SIZE<TAB>` and then `NAME:FILE:LINE` for each frame, the innermost first: what the
trace must have, too.
"""

import ctypes
import sys

WITH_GIL = ctypes.PyDLL("libcuda.so.1")
WITHOUT_GIL = ctypes.CDLL("libcuda.so.1")
# Looked up here: a function of ctypes for it must not be on the stacks.
ALLOCATE = [WITH_GIL.cuMemAlloc_v2, WITHOUT_GIL.cuMemAlloc_v2]
FREE = [WITH_GIL.cuMemFree_v2, WITHOUT_GIL.cuMemFree_v2]
ADDRESS = ctypes.c_uint64
SIZE = ctypes.c_size_t
REFERENCE = ctypes.byref
QUALIFIED = sys.version_info >= (3, 11)

context = ctypes.c_void_p()


def check(code):
    if code != 0:
        raise SystemExit(f"CUDA error {code}")


def start():
    device = ctypes.c_int()
    check(WITH_GIL.cuInit(0))
    check(WITH_GIL.cuDeviceGet(REFERENCE(device), 0))
    check(WITH_GIL.cuDevicePrimaryCtxRetain(REFERENCE(context), device))
    check(WITH_GIL.cuCtxSetCurrent(context))


def on_thread():
    check(WITH_GIL.cuCtxSetCurrent(context))


class Recorder:
    """Allocates with a size of its own each time."""

    def __init__(self, first=4096):
        self.size = first
        self.lines = []

    def hit(self, number=0):
        """Allocates and frees, with the GIL or without, and notes the stack."""
        self.size += 1
        size, address, which = self.size, ADDRESS(), number % 2
        frame = sys._getframe()
        code, expected = ALLOCATE[which](REFERENCE(address), SIZE(size)), stack(frame, sys._getframe().f_lineno)
        FREE[which](address)
        self.lines.append(f"{size}\t" + "\t".join(expected))
        return code

    def flush(self):
        text, self.lines = "".join(line + "\n" for line in self.lines), []
        sys.stdout.write(text)
        sys.stdout.flush()


def stack(frame, line):
    """As `traceback.extract_stack` has it, with qualified names where code has them."""
    found = []
    while frame is not None and len(found) < 250:
        code = frame.f_code
        name = code.co_qualname if QUALIFIED else code.co_name
        found.append(f"{name}:{code.co_filename}:{line if line else frame.f_lineno or 0}")
        frame, line = frame.f_back, None
    return found

"""Satellite tiles are put together; the mosaic lies in managed memory, so that a viewer on the host can read it, too."""
import ctypes
import glob
import os

import torch

PASSES, ROWS, COLUMNS = 8, 2048, 2048


def cuda_runtime():
    version = (torch.version.cuda or "12").split(".")[0]
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    candidates = [f"libcudart.so.{version}"] + glob.glob(f"{packages}/nvidia/*/lib/libcudart.so.*") + ["libcudart.so"]
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            pass
    raise SystemExit("no CUDA runtime library")


lib = cuda_runtime()
lib.cudaMallocManaged.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint]
lib.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
lib.cudaFree.argtypes = [ctypes.c_void_p]


class Mosaic:
    """What the viewer shows: one picture in managed memory."""

    allocated = 0

    def __init__(self):
        self.picture, self.shape = None, None

    def reserve(self, shape):
        if self.picture is not None and shape != self.shape:
            self.release()
        size = shape[0] * shape[1] * 4
        self.picture, self.shape = ctypes.c_void_p(), shape
        if lib.cudaMallocManaged(ctypes.byref(self.picture), size, 1):
            raise MemoryError(f"{size} bytes of managed memory")
        Mosaic.allocated += size

    def show(self, tiles):
        self.reserve(tuple(tiles.shape))
        if lib.cudaMemcpy(self.picture, tiles.data_ptr(), tiles.numel() * 4, 4):
            raise RuntimeError("cudaMemcpy")

    def corner(self):
        return ctypes.cast(self.picture, ctypes.POINTER(ctypes.c_float))[0]

    def release(self):
        lib.cudaFree(self.picture)
        Mosaic.allocated -= self.shape[0] * self.shape[1] * 4
        self.picture = None


def satellite():
    for _ in range(PASSES):
        yield torch.rand(ROWS // 256, COLUMNS // 256, 256, 256, device="cuda")


def assemble(tiles):
    return tiles.permute(0, 2, 1, 3).reshape(ROWS, COLUMNS)


def main():
    mosaic, managed = Mosaic(), []
    for tiles in satellite():
        picture = assemble(tiles).clamp_(0, 1)
        mosaic.show(picture)
        torch.cuda.synchronize()
        print(f"corner {mosaic.corner():.3f}, mean {picture.mean().item():.3f}")
        managed.append(Mosaic.allocated)
    half = PASSES // 2
    rate = (managed[-1] - managed[half]) // (PASSES - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={max(managed)} reserved={torch.cuda.max_memory_reserved()}")


main()

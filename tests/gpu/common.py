"""What the workload programs share: stable output lines, digests, a place for figures that vary.

Standard output must be the same, byte for byte, with and without the shim; whatever may vary from
run to run (times, bytes that depend on addresses) goes to the file named by `--json`.
"""

import argparse
import hashlib
import json
import os


def arguments(steps=10, **extra):
    """Parses `--json FILE`, `--steps N` and the program's own options (name -> default)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--steps", type=int, default=steps)
    for name, default in extra.items():
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action="store_true", default=default)
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def emit(name, *values):
    """One stable line: floats are printed exactly, as hexadecimal."""
    print(name, *[v.hex() if isinstance(v, float) else v for v in values], flush=True)


def digest(array):
    """The first 16 digits of the SHA-256 of an array's bytes (numpy, or anything numpy accepts)."""
    import numpy

    return hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def tensor_digest(tensor):
    """The same for a torch tensor of any type, bfloat16 included."""
    import torch

    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return digest(flat.cpu().numpy())


def deterministic_torch(strict=False):
    """Seeds PyTorch and asks it for the same bits in every run; returns the module.

    `strict` makes an operation that has no such way an error. Attention needs it: with warnings
    alone it chooses its fastest way, which differs from run to run."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    # Filling fresh tensors would hide what an allocator hands out, and cost a kernel for each.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    return torch


def torch_figures(torch):
    """PyTorch's own account of its memory, in bytes and calls; zeros when its cache is off."""
    stats = torch.cuda.memory_stats()
    return {
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "max_memory_reserved": torch.cuda.max_memory_reserved(),
        "device_allocs": stats.get("num_device_alloc", 0),
        "device_frees": stats.get("num_device_free", 0),
        "tensor_allocs": stats.get("allocation.all.allocated", 0),
        "tensor_frees": stats.get("allocation.all.freed", 0),
    }


def restore_numpy_names(numpy):
    """Names that numpy has dropped and some releases of numba-cuda still mention when they are imported."""
    for old, new in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
        if not hasattr(numpy, old):
            setattr(numpy, old, getattr(numpy, new))


def write_figures(path, figures):
    """Writes the figures as JSON when `--json` was given."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


def median(values):
    """The median; 0 for none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0

"""PyTorch: how long it takes to fill much memory for the first time: tensors of 512, 64, 20 and 1 MiB and
many small ones, in a mixed order. Prints JSON: seconds for the first time and for a second time after
everything was dropped and the cache emptied."""

import argparse
import json
import random
import time

parser = argparse.ArgumentParser()
parser.add_argument("--gib", type=float, default=40, help="GiB of tensors")
options = parser.parse_args()

import torch

MIB = 1 << 20
SHARES = {512 * MIB: 0.5, 64 * MIB: 0.25, 20 * MIB: 0.18, MIB: 0.045}
"""Size of a tensor -> its share of the whole; what is left is small ones."""
wanted = int(options.gib * 1024) * MIB
mixed = random.Random(8)
sizes = [size for size, share in SHARES.items() for _ in range(int(wanted * share) // size)]
while sum(sizes) < wanted and len(sizes) < 20000:
    sizes += [mixed.randrange(512, 256 << 10) for _ in range(1000)]
mixed.shuffle(sizes)


def fill():
    """Seconds until all tensors are there; they are dropped outside of the clock."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    # What is handed out must be usable, at its beginning and its end.
    for tensor in (tensors[0], tensors[len(tensors) // 2], tensors[-1]):
        tensor[0], tensor[-1] = 1, 2
        assert tensor[0].item() == 1 and tensor[-1].item() == 2
    return seconds


torch.ones(10, device="cuda").sum().item()
first = fill()
reserved = torch.cuda.max_memory_reserved()
torch.cuda.empty_cache()
again = fill()
print(json.dumps({
    "backend": torch.cuda.get_allocator_backend(), "tensors": len(sizes), "bytes": sum(sizes),
    "first_s": first, "again_s": again, "reserved": reserved,
}))

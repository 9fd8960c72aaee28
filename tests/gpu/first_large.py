"""PyTorch: how long one large request takes, the first one of a process; then the same amount in requests of 1 GiB, and
again after `empty_cache`. Prints JSON, seconds."""

import argparse
import json
import time

parser = argparse.ArgumentParser()
parser.add_argument("--gib", type=int, default=40)
options = parser.parse_args()

import torch

GIB = 1 << 30
torch.cuda.init()
torch.cuda.current_stream().synchronize()


def timed(sizes):
    """Seconds until memory of these sizes is there; it is dropped outside of the clock."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    for tensor in tensors:
        tensor[0], tensor[-1] = 1, 2
    torch.cuda.synchronize()
    del tensors, tensor
    return seconds


figures = {"one": timed([options.gib * GIB])}
torch.cuda.empty_cache()
figures["one_again"] = timed([options.gib * GIB])
torch.cuda.empty_cache()
figures["parts"] = timed([GIB] * options.gib)
torch.cuda.empty_cache()
figures["parts_again"] = timed([GIB] * options.gib)
torch.cuda.empty_cache()
small = torch.empty(512, dtype=torch.uint8, device="cuda")
figures["one_after_small"] = timed([options.gib * GIB])
print(json.dumps({name: round(seconds, 5) for name, seconds in figures.items()}))

"""PyTorch's own allocator: memory pools, and its memory history with a snapshot. What both say of sizes
and counts is printed; addresses and times are not."""

import os
from collections import Counter

from common import arguments, deterministic_torch, emit, tensor_digest, torch_figures, write_figures

options = arguments()
torch = deterministic_torch()
device = torch.device("cuda")


def segments(all_of_them):
    """Total and allocated bytes of each segment and its number of blocks, in order of size."""
    return sorted((one["total_size"], one["allocated_size"], len(one["blocks"])) for one in all_of_them)


pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = [torch.full((1 << (12 + step),), float(step), device=device) for step in range(options.steps)]
outside = torch.full((1 << 20,), 5.0, device=device)
for tensor in inside:
    emit("pool", tensor.numel(), tensor_digest(tensor))
emit("outside", tensor_digest(outside))
emit("pool segments", segments(pool.snapshot()))
del inside, tensor
torch.cuda.empty_cache()
emit("pool emptied", segments(pool.snapshot()), torch.cuda.memory_allocated())
del pool
torch.cuda.empty_cache()
emit("pool gone", torch.cuda.memory_reserved())

torch.cuda.memory._record_memory_history(max_entries=10000, stacks="python")
kept = []
for step in range(options.steps):
    kept.append(torch.randn(1000 * (step + 1) ** 2, device=device))
    (kept[-1] * 2).sum()
    if step % 3 == 2:
        del kept[0]
torch.cuda.synchronize()
snapshot = torch.cuda.memory._snapshot()
torch.cuda.memory._dump_snapshot("snapshot.pickle")
torch.cuda.memory._record_memory_history(enabled=None)
trace = snapshot["device_traces"][0]
emit("history", sorted(Counter(entry["action"] for entry in trace).items()))
emit("history sizes", [entry["size"] for entry in trace if entry["action"] == "alloc"])
here = os.path.basename(__file__)
frames = [frame for entry in trace for frame in entry.get("frames", [])]
emit("history frames", any(frame["filename"].endswith(here) for frame in frames))
emit("history segments", segments(snapshot["segments"]))
emit("snapshot", os.path.getsize("snapshot.pickle") > 1000)
write_figures(options.json, torch_figures(torch))

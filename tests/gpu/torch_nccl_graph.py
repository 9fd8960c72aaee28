"""PyTorch: all-reduces over NCCL in a captured graph, one process a GPU. NCCL may register the buffers of a graph, so
that their pages must stay; tensors of other sizes are made and dropped between the replays. Prints how many sums were wrong."""

import os
import tempfile

from common import arguments, deterministic_torch, emit

RANKS = 2
SIZES = [1 << 20, 5_000_000, 1 << 12, 16_000_000]
"""Bytes of the buffers: in pages of their own, across pages, small."""


def work(rank, meeting, replays):
    """One rank: rank 0 prints the wrong sums of both."""
    torch = deterministic_torch()
    import torch.distributed as ranks

    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    ranks.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=RANKS, device_id=device)
    # Holes between the buffers, so that their pages would be worth moving.
    buffers, between = [], []
    for size in SIZES * 4:
        buffers.append(torch.zeros(size // 4, device=device))
        between.append(torch.zeros(3_000_000, device=device))
    value = torch.zeros((), device=device)
    for buffer in buffers:
        ranks.all_reduce(buffer)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number, buffer in enumerate(buffers):
            buffer.fill_(number + rank).add_(value)
            ranks.all_reduce(buffer)
    del between
    wrong = torch.zeros((), device=device)
    churn = []
    for replay in range(replays):
        value.fill_(replay)
        # Tensors of these sizes fit between no two buffers.
        churn.append(torch.full(((replay * 7919 % 31 + 1) << 20,), 1e9, device=device))
        if len(churn) > 4:
            del churn[replay % 4]
        graph.replay()
        for number, buffer in enumerate(buffers):
            wrong += (buffer != RANKS * (number + replay) + 1).any()
    ranks.all_reduce(wrong)
    if rank == 0:
        emit("wrong", int(wrong.item()))
    ranks.barrier()
    torch.cuda.synchronize()
    del graph
    ranks.destroy_process_group()


def main():
    options = arguments(replays=300)
    # The machines that this runs on share their switches: no multicast.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(work, args=(os.path.join(folder, "meeting"), options.replays), nprocs=RANKS, join=True)


if __name__ == "__main__":
    main()

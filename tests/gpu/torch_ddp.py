"""PyTorch: distributed data parallel over NCCL, one process a GPU, batches of varying size; the mean loss
of each step and a digest of the weights on every rank."""

import os
import tempfile

from common import arguments, deterministic_torch, emit, tensor_digest

RANKS = 2


def work(rank, meeting, steps):
    """One rank: it trains, and rank 0 prints."""
    torch = deterministic_torch()
    import torch.distributed as ranks

    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    ranks.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=RANKS, device_id=device)
    torch.manual_seed(1)
    layers = [torch.nn.Linear(512, 2048), torch.nn.GELU()]
    for _ in range(4):
        layers += [torch.nn.Linear(2048, 2048), torch.nn.LayerNorm(2048), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(2048, 10)).to(device)
    # Small buckets, so that reductions overlap with the backward pass.
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], bucket_cap_mb=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(100 + rank)
    for step in range(steps):
        inputs = torch.randn(64 * (1 + step * 7 % 11), 512, device=device)
        loss = model(inputs).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        ranks.all_reduce(mean)
        if rank == 0:
            emit("loss", step, mean.item())
    weights = torch.cat([p.reshape(-1) for p in model.parameters()]).detach()
    every = [torch.empty_like(weights) for _ in range(RANKS)]
    ranks.all_gather(every, weights)
    if rank == 0:
        for number, one in enumerate(every):
            emit("weights", number, tensor_digest(one))
    ranks.barrier()
    torch.cuda.synchronize()
    ranks.destroy_process_group()


def main():
    options = arguments(steps=50)
    # The machines that this runs on share their switches: no multicast.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(work, args=(os.path.join(folder, "meeting"), options.steps), nprocs=RANKS, join=True)


if __name__ == "__main__":
    main()

"""PyTorch under torchrun: distributed data parallel over NCCL, in which one rank keeps 1 MiB more after each step."""

import os

from common import arguments, deterministic_torch


class Metrics:
    """What a careless programmer keeps of each step."""

    def __init__(self):
        self.kept = []

    def keep(self, torch, device):
        self.kept.append(torch.zeros(1 << 18, device=device))


def main():
    options = arguments(steps=200, leaky=1)
    # The machines that this runs on share their switches: no multicast.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch = deterministic_torch()
    import torch.distributed as ranks

    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    ranks.init_process_group("nccl", device_id=device)
    model = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 10)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    metrics = Metrics()
    for step in range(options.steps):
        inputs = torch.randn(64 * (1 + step * 7 % 5), 512, device=device)
        loss = model(inputs).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if rank == options.leaky:
            metrics.keep(torch, device)
    torch.cuda.synchronize()
    ranks.destroy_process_group()


if __name__ == "__main__":
    main()

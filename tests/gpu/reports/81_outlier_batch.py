"""Fine-tuning with checkpointing on a shared GPU: 3 GiB for this process. One document is far longer than the rest."""
import gc

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LIMIT, WIDTH, DEPTH = 3 << 30, 4096, 8
ROWS = [1024] * 30
ROWS[12] = 8 * 1024


class Segment(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


class Tower(nn.Module):
    """Two segments; of each only the input is kept until the backward pass."""

    def __init__(self):
        super().__init__()
        self.segments = nn.ModuleList([Segment(), Segment()])
        self.head = nn.Linear(WIDTH, 16)

    def forward(self, x):
        for segment in self.segments:
            x = checkpoint(segment, x, use_reentrant=False)
        return self.head(x)


def documents():
    for rows in ROWS:
        yield torch.randn(rows, WIDTH, device="cuda"), torch.randint(0, 16, (rows,), device="cuda")


class FineTuning:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        self.skipped = []

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fits(self, x, y):
        try:
            self.step(x, y)
        except torch.OutOfMemoryError as error:
            print(f"{len(x)} rows are left out: {str(error)[:120]}")
            return False
        return True

    def run(self, loader):
        allocated = []
        for number, (x, y) in enumerate(loader):
            if not self.fits(x, y):
                self.skipped.append(number)
                self.optimizer.zero_grad()
                gc.collect()
                torch.cuda.empty_cache()
            allocated.append(torch.cuda.memory_allocated())
        return allocated


def main():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(LIMIT / total)
    training = FineTuning(Tower().cuda())
    allocated = training.run(documents())
    half = len(allocated) // 2
    rate = (allocated[-1] - allocated[half]) // (len(allocated) - 1 - half)
    print("left out:", training.skipped)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

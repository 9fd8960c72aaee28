"""What one small tensor costs to make and drop, in nanoseconds of Python's clock, beneath a training step's depth of
calls. With `--history` PyTorch's own memory history takes the stack of each allocation, Python's and C++'s."""

import statistics
import time

from common import arguments, deterministic_torch, emit, write_figures

options = arguments(steps=3000, history=False)
torch = deterministic_torch()
from torch import nn

BYTES = 4096 + 512
"""A size that nothing else in the program asks for, by which its events are found."""
figures = {}


def measure():
    spent = []
    for _ in range(options.steps):
        start = time.perf_counter_ns()
        tensor = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
        del tensor
        spent.append(time.perf_counter_ns() - start)
    spent = spent[len(spent) // 10 :]
    figures["pair_ns"] = statistics.median(spent)
    figures["p99_ns"] = statistics.quantiles(spent, n=100)[98]


class Nest(nn.Module):
    """Modules within modules, with the measurement in the innermost."""

    def __init__(self, depth):
        super().__init__()
        self.inner = Nest(depth - 1) if depth else None

    def forward(self, x):
        if self.inner is None:
            measure()
            return x
        return self.inner(x)


def main():
    if options.history:
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="all", max_entries=100_000)
    x = torch.ones(1, device="cuda")
    emit("one", Nest(6)(x).item())
    write_figures(options.json, figures)


main()

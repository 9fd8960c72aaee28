"""A memory of past inputs that grows until nothing is left: to be run with GPUSHIM_LIMIT."""

import torch
from torch import nn
from torch.cuda import nvtx
from truth import tell

WIDTH, BATCH, STEPS = 1024, 4096, 1000


class Memory(nn.Module):
    """Keeps what it has seen."""

    def __init__(self):
        super().__init__()
        self.past = []

    def forward(self, x):
        self.past.append(x.detach().clone())
        return x


def train(model, memory, optimizer):
    for step in range(STEPS):
        with nvtx.range(f"step {step}"):
            x = torch.randn(BATCH, WIDTH, device="cuda")
            model(memory(x)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def main():
    memory, model = Memory(), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8)).to("cuda")
    failed = ""
    try:
        train(model, memory, torch.optim.SGD(model.parameters(), lr=0.01))
    except torch.OutOfMemoryError as error:
        failed = str(error).splitlines()[0]
    tell(planted=BATCH * WIDTH * 4, function="Memory.forward", kept=len(memory.past), failed=failed)


main()

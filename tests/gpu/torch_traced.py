"""A small training whose trace can be checked: its phases are NVTX ranges, and at marks it writes down what
PyTorch itself says of its memory, `truth ALLOCATED RESERVED`."""

from common import arguments, deterministic_torch, emit

options = arguments(steps=6)
torch = deterministic_torch()
from torch import nn

nvtx = torch.cuda.nvtx


class Wide(nn.Module):
    """Two layers around an activation."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


def truth():
    """What PyTorch says now, into the trace."""
    torch.cuda.synchronize()
    nvtx.mark(f"truth {torch.cuda.memory_allocated()} {torch.cuda.memory_reserved()}")


def train_step(model, optimizer, batch):
    with nvtx.range("forward"):
        loss = model(batch).square().mean()
    truth()
    with nvtx.range("backward"):
        loss.backward()
    truth()
    with nvtx.range("optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    truth()
    return loss


def main():
    model = nn.Sequential(*(Wide(512) for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    truth()
    for number in range(options.steps):
        with nvtx.range(f"step {number}"):
            batch = torch.randn(64 + 32 * number, 512, device="cuda")
            loss = train_step(model, optimizer, batch)
        emit("loss", number, loss.item())
        if number == 3:
            torch.cuda.empty_cache()
            truth()


main()

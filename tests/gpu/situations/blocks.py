"""A network whose activations outweigh its weights, for the programs that compare two ways of training it."""

import torch
from torch import nn
from torch.cuda import nvtx
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH, DEPTH, STEPS = 512, 2048, 6, 12
MIB = 1 << 20


class Block(nn.Module):
    """Two layers around an activation, and a residual."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Net(nn.Module):
    """Blocks one after the other; with `recompute` each keeps its input only and computes the rest again."""

    def __init__(self, recompute=False):
        super().__init__()
        self.blocks, self.recompute = nn.ModuleList(Block() for _ in range(DEPTH)), recompute

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return x


def warm_up():
    """cuBLAS takes a workspace at its first call; here it does not count as anybody's activations."""
    nn.Linear(8, 8).to("cuda")(torch.zeros(8, 8, device="cuda")).sum().backward()
    torch.cuda.synchronize()


def forward(model, x):
    """The loss, and what the forward pass kept, in bytes."""
    before = torch.cuda.memory_allocated()
    with nvtx.range("forward"):
        loss = model(x).square().mean()
    return loss, torch.cuda.memory_allocated() - before


def backward(loss):
    with nvtx.range("backward"):
        loss.backward()


def update(optimizer):
    with nvtx.range("optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def figures(kept):
    """PyTorch's own account: the peak, and the mean of what the forward passes kept."""
    return {"peak": torch.cuda.max_memory_allocated(), "forward_keeps": sum(kept) / len(kept)}

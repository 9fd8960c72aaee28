"""Attention with a distance kernel whose temperature is annealed in training. The kernel is cached: it is costly."""
import functools

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 60
BATCH, LENGTH, DIM = 32, 128, 256


class KernelAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.scale = dim ** -0.5

    @functools.lru_cache(maxsize=None)
    def kernel(self, length, temperature):
        position = torch.arange(length, device=self.out.weight.device)
        distance = (position[:, None] - position[None, :]).abs()
        return torch.exp(-distance / temperature)

    def forward(self, x, temperature):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.transpose(1, 2) * self.scale, dim=-1)
        weights = weights * self.kernel(x.shape[1], temperature)
        return self.out(weights @ v)


class Annealed:
    def __init__(self):
        self.attention = KernelAttention(DIM).cuda()
        self.head = nn.Linear(DIM, 10).cuda()
        parameters = [*self.attention.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=3e-4)

    def temperature(self, step):
        return 16.0 * 0.97 ** step

    def step(self, number):
        x = torch.randn(BATCH, LENGTH, DIM, device="cuda")
        y = torch.randint(0, 10, (BATCH,), device="cuda")
        hidden = self.attention(x, self.temperature(number))
        loss = F.cross_entropy(self.head(hidden.mean(1)), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def measured(trainer, number):
    loss = trainer.step(number)
    return loss, torch.cuda.memory_allocated()


def main():
    trainer = Annealed()
    history = [measured(trainer, number) for number in range(STEPS)]
    losses, allocated = zip(*history)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}", KernelAttention.kernel.cache_info())
    first = STEPS // 2
    rate = (allocated[-1] - allocated[first]) // (STEPS - 1 - first)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

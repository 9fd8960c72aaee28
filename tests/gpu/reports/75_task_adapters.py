"""Continual learning: the backbone is frozen, and each new task gets low-rank adapters of its own in all four layers."""
import torch
from torch import nn
from torch.nn import functional as F

TASKS, STEPS, BATCH, WIDTH, RANK, LAYERS = 10, 15, 256, 2048, 128, 4


class Adapter(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.down = nn.Parameter(torch.empty(rank, width, device="cuda").normal_(std=width ** -0.5))
        self.up = nn.Parameter(torch.zeros(width, rank, device="cuda"))

    def forward(self, x):
        return F.linear(F.linear(x, self.down), self.up)


class AdaptedLinear(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.base = nn.Linear(width, width).cuda().requires_grad_(False)
        self.active = None

    def add_task(self, name):
        self.register_module(name, Adapter(self.base.in_features, RANK))
        self.active = name

    def forward(self, x):
        return self.base(x) + getattr(self, self.active)(x)


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(AdaptedLinear(WIDTH) for _ in range(LAYERS))

    def begin(self, name):
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        for layer in self.layers:
            layer.add_task(name)
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def learn(learner, task):
    parameters = learner.begin(f"task_{task}")
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    direction = torch.randn(WIDTH, device="cuda")
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        loss = F.mse_loss(learner(x).mean(1), torch.tanh(x @ direction))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


def main():
    torch.manual_seed(7)
    learner, allocated = Learner(), []
    for task in range(TASKS):
        print(f"task {task}: loss {learn(learner, task):.4f}")
        allocated.append(torch.cuda.memory_allocated())
    half = TASKS // 2
    rate = (allocated[-1] - allocated[half]) // (TASKS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

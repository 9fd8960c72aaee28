"""A layer that keeps a copy of everything it was ever given."""

import torch
from torch import nn
from truth import tell

WIDTH, BATCH, STEPS = 1024, 256, 30


class LeakyLayer(nn.Module):
    """A layer with a cache that nobody empties."""

    def __init__(self):
        super().__init__()
        self.linear, self.cache = nn.Linear(WIDTH, WIDTH), []

    def forward(self, x):
        self.cache.append(x.detach().clone())
        return self.linear(x)


def main():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), LeakyLayer(), nn.ReLU(), nn.Linear(WIDTH, 10)).to("cuda")
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        labels = torch.randint(0, 10, (BATCH,), device="cuda")
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tell(planted=BATCH * WIDTH * 4, function="LeakyLayer.forward")


main()

"""The training of the picture in README.md: its evaluation keeps its graphs. Needs PyTorch and a GPU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4096, 4096) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.mean()


def evaluate(model, batch):
    return model(batch)


def train_step(model, optimizer, batch):
    loss = model(batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def train(steps):
    model = Model().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(4096, 4096, device="cuda")
    history = []
    for _ in range(steps):
        train_step(model, optimizer, batch)
        history.append(evaluate(model, batch))


train(40)

"""Losses of an evaluation without `no_grad`, kept in a list: each keeps the graph it came from."""

import torch
from torch import nn
from truth import tell

WIDTH, BATCH, STEPS = 1024, 128, 30


class Net(nn.Module):
    """Three layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        return self.third(torch.relu(self.second(torch.relu(self.first(x)))))


def evaluate(model, x):
    return (model(x) - x).square().mean()


def main():
    model = Net().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    history = []
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        evaluate(model, x).backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(evaluate(model, x))
    # Of each: the input, two activations and the difference, which are as large as each other, and the loss.
    tell(planted=4 * BATCH * WIDTH * 4 + 512, function="Net.forward", history=len(history))


main()

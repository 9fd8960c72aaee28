"""A training as it was recorded first, or with `--ema` as somebody has changed it since."""

import sys

import torch
from blocks import BATCH, STEPS, WIDTH, Net, backward, figures, forward, update, warm_up
from torch import nn
from truth import tell


class Average(nn.Module):
    """A running mean of a model's weights."""

    def __init__(self, model):
        super().__init__()
        self.means = [parameter.detach().clone() for parameter in model.parameters()]

    def update(self, model):
        for mean, parameter in zip(self.means, model.parameters()):
            mean.lerp_(parameter.detach(), 0.01)


def main():
    warm_up()
    model = Net().to("cuda")
    average = Average(model) if "--ema" in sys.argv else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    for _ in range(STEPS):
        loss, keeps = forward(model, torch.randn(BATCH, WIDTH, device="cuda"))
        kept.append(keeps)
        backward(loss)
        update(optimizer)
        if average:
            average.update(model)
    weights = sum(parameter.nelement() * 4 for parameter in model.parameters())
    tell(planted=weights if average else 0, function="Average.__init__", **figures(kept))


main()

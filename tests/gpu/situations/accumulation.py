"""A training by whole batches, or with `--on` by quarters whose gradients add up."""

import sys

import torch
from blocks import BATCH, STEPS, WIDTH, Net, backward, figures, forward, update, warm_up
from truth import tell


def main():
    warm_up()
    parts = 4 if "--on" in sys.argv else 1
    model = Net().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    for _ in range(STEPS):
        for _ in range(parts):
            loss, keeps = forward(model, torch.randn(BATCH // parts, WIDTH, device="cuda"))
            kept.append(keeps)
            backward(loss / parts)
        update(optimizer)
    tell(function="Block.forward", **figures(kept))


main()

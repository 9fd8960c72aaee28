"""A training that keeps its activations, or with `--on` computes them again in the backward pass."""

import sys

import torch
from blocks import BATCH, STEPS, WIDTH, Net, backward, figures, forward, update, warm_up
from truth import tell


def main():
    warm_up()
    model = Net(recompute="--on" in sys.argv).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    for _ in range(STEPS):
        loss, keeps = forward(model, torch.randn(BATCH, WIDTH, device="cuda"))
        kept.append(keeps)
        backward(loss)
        update(optimizer)
    tell(function="Block.forward", **figures(kept))


main()

"""A training in float32, or with `--on` in bfloat16 by autocast."""

import sys

import torch
from blocks import BATCH, STEPS, WIDTH, Net, backward, figures, forward, update, warm_up
from truth import tell


def main():
    warm_up()
    model = Net().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled="--on" in sys.argv):
            loss, keeps = forward(model, x)
        kept.append(keeps)
        backward(loss)
        update(optimizer)
    tell(function="Block.forward", **figures(kept))


main()

"""Looks for a learning rate by bisection: eight trials of thirty steps, each with a new model."""
import math

import torch
from torch import nn
from torch.nn import functional as F

MODELS = {}
TRIALS, STEPS, BATCH = 8, 30, 256
allocated = []


def registered(build):
    """So that the best model can be taken by its name when the search is over."""
    def wrapper(name, *args, **kwargs):
        model = build(*args, **kwargs)
        MODELS[name] = model
        return model
    return wrapper


@registered
def make_classifier(dropout):
    layers = nn.Sequential(
        nn.Linear(512, 2048), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(2048, 2048), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(2048, 10),
    )
    return layers.to("cuda")


def run_trial(name, rate):
    model = make_classifier(name, dropout=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    loss = torch.zeros(())
    for _ in range(STEPS):
        x = torch.randn(BATCH, 512, device="cuda")
        y = x[:, :10].argmax(1)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    value = loss.item()
    return value if math.isfinite(value) else float("inf")


def search(low, high, left, best=None):
    """Halves [low, high] (exponents of ten) until no trial is left. Gives (loss, name)."""
    if left == 0:
        return best
    middle = (low + high) / 2
    name = f"rate=1e{middle:.4f}"
    loss = run_trial(name, 10 ** middle)
    allocated.append(torch.cuda.memory_allocated())
    print(f"{name}: {loss:.4f}")
    if best is None or loss < best[0]:
        return search(middle, high, left - 1, (loss, name))
    return search(low, middle, left - 1, best)


def main():
    torch.manual_seed(9)
    loss, name = search(-5.0, 0.0, TRIALS)
    print(f"best of {len(MODELS)}: {name} with {loss:.4f}, "
          f"{sum(parameter.numel() for parameter in MODELS[name].parameters())} weights")
    half = TRIALS // 2
    rate = (allocated[-1] - allocated[half]) // (TRIALS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

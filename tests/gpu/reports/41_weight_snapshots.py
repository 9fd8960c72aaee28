"""Trains for twelve epochs and takes the mean of the weights of the best five. Each epoch's weights are remembered."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

EPOCHS, STEPS, BATCH, WIDTH = 12, 10, 512, 2048


def build_model():
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH),
        nn.BatchNorm1d(WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
    ).cuda()


class Checkpoints:
    def __init__(self, keep_best):
        self.keep_best = keep_best
        self.entries = []

    def add(self, epoch, score, model):
        self.entries.append({"epoch": epoch, "score": score, "weights": copy.deepcopy(model.state_dict())})

    def best(self):
        return sorted(self.entries, key=lambda entry: entry["score"])[:self.keep_best]

    def average(self):
        best = [entry["weights"] for entry in self.best()]
        return {name: torch.stack([weights[name].float() for weights in best]).mean(0) for name in best[0]}


def train(model, optimizer):
    model.train()
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        loss = F.mse_loss(model(x), x.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(model):
    model.eval()
    with torch.no_grad():
        x = torch.randn(BATCH, WIDTH, device="cuda")
        return F.mse_loss(model(x), x.roll(1, dims=1)).item()


def main():
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    checkpoints, allocated = Checkpoints(keep_best=5), []
    for epoch in range(EPOCHS):
        train(model, optimizer)
        score = validate(model)
        checkpoints.add(epoch, score, model)
        allocated.append(torch.cuda.memory_allocated())
        print(f"epoch {epoch}: {score:.5f}")
    peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    model.load_state_dict(checkpoints.average())
    print(f"mean of the epochs {[entry['epoch'] for entry in checkpoints.best()]}: {validate(model):.5f}")
    half = EPOCHS // 2
    rate = (allocated[-1] - allocated[half]) // (EPOCHS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={peak} reserved={reserved}")


main()

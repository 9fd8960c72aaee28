"""Fits a regression on dirty data. Batches whose loss is not finite are skipped and listed at the end."""
import math

import torch
from torch import nn

BATCHES = 60
BATCH = 1024


class DirtyData:
    """Every seventh batch has an infinite measurement in it."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        for number in range(self.count):
            inputs = torch.randn(BATCH, 512, device="cuda")
            if number % 7 == 6:
                inputs[3, 14] = math.inf
            yield inputs, torch.randn(BATCH, 512, device="cuda")


class Fitter:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.criterion = nn.MSELoss()
        self.failures = []
        self.allocated = []

    def train_batch(self, inputs, targets):
        prediction = self.model(inputs)
        loss = self.criterion(prediction, targets)
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"loss is {loss.item()}")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, data):
        total, good = 0.0, 0
        for number, (inputs, targets) in enumerate(data):
            try:
                total += self.train_batch(inputs, targets)
                good += 1
            except FloatingPointError as error:
                self.failures.append((number, error))
            self.allocated.append(torch.cuda.memory_allocated())
        return total / good

    def summary(self):
        return "\n".join(f"  batch {number}: {type(error).__name__}: {error}" for number, error in self.failures)


def main():
    fitter = Fitter()
    mean = fitter.fit(DirtyData(BATCHES))
    print(f"mean loss {mean:.4f}, {len(fitter.failures)} batches skipped:\n{fitter.summary()}")
    window = 28  # four times seven
    growth = (fitter.allocated[-1] - fitter.allocated[-1 - window]) // window
    print(f"TRUTH allocated_growth_per_iter={growth} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()} per_failure={growth * 7}")


if __name__ == "__main__":
    main()

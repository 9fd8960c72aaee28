"""Training with accumulated gradients, an averaged model, a warm-up of the rate, and a copy of the best weights so far."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

STEPS, MICRO_STEPS, BATCH, WIDTH, CLASSES = 60, 8, 512, 1536, 50
WARM_UP, EVALUATE_EACH = 5, 10


def build():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))


class Average:
    def __init__(self, model, decay=0.98):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ours, theirs in zip(self.model.parameters(), model.parameters()):
            ours.lerp_(theirs, 1 - self.decay)


class Best:
    """One slot: the weights of the best evaluation."""

    def __init__(self):
        self.loss, self.weights = float("inf"), None

    def offer(self, loss, model):
        if loss < self.loss:
            self.loss = loss
            self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}


class Trainer:
    def __init__(self):
        self.model = build().cuda()
        self.average, self.best = Average(self.model), Best()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / WARM_UP))
        self.teacher = torch.randn(WIDTH, CLASSES, device="cuda")

    def batch(self):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        return x, (x @ self.teacher).argmax(1)

    def optimizer_step(self):
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(MICRO_STEPS):
            x, y = self.batch()
            (F.cross_entropy(self.model(x), y) / MICRO_STEPS).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.average.update(self.model)

    @torch.no_grad()
    def evaluate(self):
        losses = [F.cross_entropy(self.average.model(x), y) for x, y in (self.batch() for _ in range(16))]
        self.best.offer(torch.stack(losses).mean().item(), self.average.model)

    def fit(self):
        allocated = []
        for step in range(1, STEPS + 1):
            self.optimizer_step()
            if step % EVALUATE_EACH == 0:
                self.evaluate()
            allocated.append(torch.cuda.memory_allocated())
        return allocated


def main():
    trainer = Trainer()
    allocated = trainer.fit()
    half = STEPS // 2
    rate = (allocated[-1] - allocated[half]) // (STEPS - 1 - half)
    print("best loss:", trainer.best.loss)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

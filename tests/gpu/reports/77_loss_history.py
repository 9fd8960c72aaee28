"""A trainer of one's own, with a curve of the losses. An error message once asked for retain_graph=True."""
import torch
from torch import nn

STEPS, BATCH, FEATURES, HIDDEN, CLASSES = 25, 512, 1024, 2048, 10


class Trainer:
    def __init__(self, model, lr=0.01):
        self.model = model
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.loss_history = []
        self.allocated = []

    def step(self, x, y):
        self.optimizer.zero_grad()
        logits = self.model(x)
        loss = self.criterion(logits, y)
        loss.backward(retain_graph=True)
        self.optimizer.step()
        self.loss_history.append(loss)

    def fit(self, source, steps):
        self.model.train()
        for _ in range(steps):
            self.step(*source.draw())
            self.allocated.append(torch.cuda.memory_allocated())
        return self

    def curve(self, smoothing=0.8):
        smooth, values = None, []
        for loss in self.loss_history:
            value = loss.item()
            smooth = value if smooth is None else smoothing * smooth + (1 - smoothing) * value
            values.append(smooth)
        return values


class Clusters:
    """Ten clouds of points in many dimensions."""

    def __init__(self):
        self.centres = 0.3 * torch.randn(CLASSES, FEATURES, device="cuda")

    def draw(self):
        y = torch.randint(0, CLASSES, (BATCH,), device="cuda")
        x = torch.randn(BATCH, FEATURES, device="cuda")
        x += self.centres[y]
        return x, y


def build():
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, FEATURES), nn.ReLU(),
                         nn.Linear(FEATURES, CLASSES)).cuda()


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(build()).fit(Clusters(), STEPS)
    curve = trainer.curve()
    print(f"loss from {curve[0]:.3f} to {curve[-1]:.3f}")
    allocated = trainer.allocated
    half = STEPS // 2
    rate = (allocated[-1] - allocated[half]) // (STEPS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")

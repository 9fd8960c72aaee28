"""Trainings and inferences without a fault, `clean.py NUMBER`: what gpushim says of them is to be nothing."""

import random
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from truth import tell

CASES = [
    # name, network, optimizer, and what else is done
    ("CNN, SGD", "cnn", "SGD", ()),
    ("CNN, momentum, evaluation", "cnn", "momentum", ("evaluate",)),
    ("CNN, Adam, autocast", "cnn", "Adam", ("amp",)),
    ("CNN, AdamW, loader", "cnn", "AdamW", ("loader",)),
    ("CNN, varying batches", "cnn", "SGD", ("varying",)),
    ("MLP, SGD, scheduler", "mlp", "SGD", ("schedule",)),
    ("MLP, Adam, accumulation", "mlp", "Adam", ("accumulate",)),
    ("MLP, AdamW, clipping", "mlp", "AdamW", ("clip",)),
    ("MLP, metrics as numbers", "mlp", "Adam", ("metrics",)),
    ("MLP, average of the weights", "mlp", "SGD", ("average",)),
    ("MLP, a second training after the first", "mlp", "Adam", ("twice",)),
    ("MLP, last outputs kept", "mlp", "SGD", ("window",)),
    ("transformer, AdamW", "transformer", "AdamW", ()),
    ("transformer, varying lengths", "transformer", "AdamW", ("varying",)),
    ("transformer, varying lengths, autocast, scheduler", "transformer", "AdamW", ("varying", "amp", "schedule")),
    ("transformer, checkpointing", "transformer", "Adam", ("checkpoint",)),
    ("transformer, accumulation, evaluation", "transformer", "Adam", ("accumulate", "evaluate")),
    ("transformer, inference of varying lengths", "transformer", "", ("varying",)),
    ("LSTM, Adam, clipping", "lstm", "Adam", ("clip",)),
    ("CNN, the cache emptied at times", "cnn", "Adam", ("empty", "evaluate")),
]
STEPS = 40


class Lstm(nn.Module):
    """The outputs of an LSTM."""

    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(64, 128, 2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.layers(x)[0][:, -1])


class Transformer(nn.Module):
    """Two encoder layers, recomputed where that is asked for."""

    def __init__(self, recompute):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True) for _ in range(2))
        self.head, self.recompute = nn.Linear(64, 10), recompute

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return self.head(x.mean(1))


def network(kind, more):
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
        )
    if kind == "mlp":
        return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
    return Lstm() if kind == "lstm" else Transformer("checkpoint" in more)


def inputs(kind, more, dice):
    """A batch, of varying shape where that is asked for."""
    size = dice.randrange(16, 96) if "varying" in more else 64
    shape = {"cnn": (size, 3, 32, 32), "mlp": (size, 256), "lstm": (32, size, 64), "transformer": (32, size, 64)}[kind]
    return torch.randn(*shape)


def batches(kind, more, dice, device):
    """Batches and their labels, on the device."""
    if "loader" in more:
        data = [inputs(kind, (), dice)[0] for _ in range(STEPS * 8)]
        for x in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
            x = x.to(device, non_blocking=True)
            yield x, torch.randint(0, 10, (len(x),), device=device)
        return
    for _ in range(STEPS):
        x = inputs(kind, more, dice).to(device)
        yield x, torch.randint(0, 10, (len(x),), device=device)


def optimizer_of(name, model):
    if name == "momentum":
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return getattr(torch.optim, name)(model.parameters(), lr=0.001)


@torch.no_grad()
def evaluate(model, kind, dice, device):
    model.eval()
    right = sum((model(inputs(kind, (), dice).to(device)).argmax(1) == 0).sum().item() for _ in range(3))
    model.train()
    return right


def train(kind, name, more, device):
    dice, model = random.Random(5), network(kind, more).to(device)
    optimizer = optimizer_of(name, model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS) if "schedule" in more else None
    average = [parameter.detach().clone() for parameter in model.parameters()] if "average" in more else []
    metrics, window = [], []
    for step, (x, labels) in enumerate(batches(kind, more, dice, device)):
        with torch.autocast(device.type, torch.bfloat16, enabled="amp" in more):
            output = model(x)
            loss = nn.functional.cross_entropy(output, labels)
        loss.backward()
        if "clip" in more:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if "accumulate" not in more or step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if schedule:
            schedule.step()
        if "metrics" in more:
            metrics.append(loss.item())
        if "window" in more:
            window = [*window[-3:], output.detach()]
        for mean, parameter in zip(average, model.parameters()):
            mean.lerp_(parameter.detach(), 0.1)
        if "evaluate" in more and step % 10 == 9:
            metrics.append(evaluate(model, kind, dice, device))
        if "empty" in more and step % 15 == 14:
            torch.cuda.empty_cache()
    return metrics


@torch.inference_mode()
def infer(kind, more, device):
    dice, model = random.Random(5), network(kind, more).to(device).eval()
    return [model(x).argmax(1).sum().item() for x, _ in batches(kind, more, dice, device)]


def main():
    name, kind, optimizer, more = CASES[int(sys.argv[1])]
    torch.manual_seed(1)
    device = torch.device("cuda")
    for _ in range(2 if "twice" in more else 1):
        train(kind, optimizer, more, device) if optimizer else infer(kind, more, device)
    tell(name=name, planted=0)


main()

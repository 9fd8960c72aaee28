"""Watches how many units are dead: at the start of each epoch probes are put on the activations, read at its end."""
import torch
from torch import nn
from torch.nn import functional as F

EPOCHS, STEPS_PER_EPOCH, BATCH = 12, 10, 256


class Probe:
    """A copy of what a layer gave last."""

    def __init__(self, name):
        self.name = name
        self.value = None

    def __call__(self, module, inputs, output):
        self.value = output.detach().clone()

    def dead(self):
        return (self.value <= 0).all(0).float().mean().item()


def attach_probes(model):
    probes = []
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            probe = Probe(name)
            module.register_forward_hook(probe)
            probes.append(probe)
    return probes


def build():
    return nn.Sequential(
        nn.Linear(512, 2048),
        nn.ReLU(),
        nn.Linear(2048, 2048),
        nn.ReLU(),
        nn.Linear(2048, 20),
    ).cuda()


def train_epoch(model, optimizer):
    for _ in range(STEPS_PER_EPOCH):
        x = torch.randn(BATCH, 512, device="cuda")
        y = torch.randint(0, 20, (BATCH,), device="cuda")
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def main():
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    allocated = []
    epoch = 0
    while epoch < EPOCHS:
        probes = attach_probes(model)
        train_epoch(model, optimizer)
        report = ", ".join(f"{probe.name}: {probe.dead():.1%}" for probe in probes)
        print(f"epoch {epoch}: dead units {report}")
        del probes
        allocated.append(torch.cuda.memory_allocated())
        epoch += 1
    half = EPOCHS // 2
    rate = (allocated[-1] - allocated[half]) // (EPOCHS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

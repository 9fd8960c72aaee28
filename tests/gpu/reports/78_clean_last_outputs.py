"""Six epochs of an autoencoder. The outputs of an epoch's last batch stay in the metrics, for a figure."""
import torch
from torch import nn
from torch.nn import functional as F

EPOCHS, STEPS, BATCH, FEATURES = 6, 20, 1024, 2048


def make_model():
    encoder = nn.Sequential(nn.Linear(FEATURES, 512), nn.SiLU(), nn.Linear(512, 64))
    decoder = nn.Sequential(nn.Linear(64, 512), nn.SiLU(), nn.Linear(512, FEATURES))
    return nn.Sequential(encoder, decoder).cuda()


def batches(steps):
    basis = torch.randn(32, FEATURES, device="cuda") / 32 ** 0.5
    for number in range(steps):
        codes = torch.randn(BATCH, 32, device="cuda")
        yield number == steps - 1, codes @ basis


def run_epoch(model, optimizer, metrics):
    total = 0.0
    for last, x in batches(STEPS):
        outputs = model(x)
        loss = F.mse_loss(outputs, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        if last:
            metrics["outputs"] = outputs
            metrics["inputs"] = x
    metrics["loss"].append(total / STEPS)


def figure(metrics):
    """Mean and spread of the error in sixteen groups of features."""
    with torch.no_grad():
        error = (metrics["outputs"] - metrics["inputs"]).view(BATCH, 16, -1)
        return error.mean((0, 2)).tolist(), error.std((0, 2)).tolist()


def main():
    torch.manual_seed(4)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    metrics, figures, allocated = {"loss": []}, [], []
    for epoch in range(EPOCHS):
        run_epoch(model, optimizer, metrics)
        figures.append(figure(metrics))
        allocated.append(torch.cuda.memory_allocated())
        print(f"epoch {epoch}: loss {metrics['loss'][-1]:.4f}, widest error {max(figures[-1][1]):.4f}")
    half = EPOCHS // 2
    rate = (allocated[-1] - allocated[half]) // (EPOCHS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

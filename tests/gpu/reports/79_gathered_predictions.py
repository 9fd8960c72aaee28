"""Training with accelerate. After each epoch the predictions on the validation set are gathered and remembered."""
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, FEATURES, CLASSES, BATCH, TRAINING, VALIDATION = 5, 256, 1024, 512, 8, 4


def dataset(batches):
    x = torch.randn(batches * BATCH, FEATURES)
    y = torch.randint(0, CLASSES, (batches * BATCH,))
    return TensorDataset(x, y)


def train(accelerator, model, optimizer, loader):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()


@torch.no_grad()
def predict(accelerator, model, loader):
    model.eval()
    predictions, labels = [], []
    for x, y in loader:
        gathered, truth = accelerator.gather((model(x), y))
        predictions.append(gathered)
        labels.append(truth)
    return torch.cat(predictions), torch.cat(labels)


def agreement(one, other):
    """How many examples two epochs put into the same class."""
    return (one[0].argmax(1) == other[0].argmax(1)).float().mean().item()


def main():
    torch.manual_seed(2)
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(FEATURES, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    training = DataLoader(dataset(TRAINING), batch_size=BATCH, shuffle=True)
    validation = DataLoader(dataset(VALIDATION), batch_size=BATCH)
    model, optimizer, training, validation = accelerator.prepare(model, optimizer, training, validation)
    by_epoch, allocated = {}, []
    for epoch in range(EPOCHS):
        train(accelerator, model, optimizer, training)
        by_epoch[epoch] = predict(accelerator, model, validation)
        if epoch:
            accelerator.print(f"epoch {epoch}: agreement {agreement(by_epoch[epoch], by_epoch[epoch - 1]):.3f}")
        allocated.append(torch.cuda.memory_allocated())
    half = EPOCHS // 2
    rate = (allocated[-1] - allocated[half]) // (EPOCHS - 1 - half)
    accelerator.print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
                      f"reserved={torch.cuda.max_memory_reserved()}")


main()

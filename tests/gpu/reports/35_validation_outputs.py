"""Trains a classifier for six epochs with a validation after each; the confusion table is drawn when all is over."""
import torch
from torch import nn


class Config:
    epochs = 6
    train_batches = 20
    val_batches = 5
    batch_size = 1024
    inputs = 1024
    classes = 512
    lr = 1e-3


def batches(config, count):
    for _ in range(count):
        x = torch.randn(config.batch_size, config.inputs, device="cuda")
        y = torch.randint(0, config.classes, (config.batch_size,), device="cuda")
        yield x, y


class Runner:
    def __init__(self, config):
        self.config = config
        self.net = nn.Sequential(
            nn.Linear(config.inputs, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Linear(2048, config.classes)
        ).cuda()
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=config.lr, momentum=0.9)
        self.val_outputs = []

    def train_one_epoch(self):
        self.net.train()
        mean = 0.0
        for x, y in batches(self.config, self.config.train_batches):
            loss = self.criterion(self.net(x), y)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            mean += loss.item() / self.config.train_batches
        return mean

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        right = 0
        for x, y in batches(self.config, self.config.val_batches):
            logits = self.net(x)
            right += (logits.argmax(1) == y).sum().item()
            self.val_outputs.append((logits, y))
        return right / (self.config.val_batches * self.config.batch_size)

    def confusion(self):
        table = torch.zeros(self.config.classes, self.config.classes, dtype=torch.int64)
        for logits, y in self.val_outputs[-self.config.val_batches:]:
            for guess, true in zip(logits.argmax(1).tolist(), y.tolist()):
                table[true, guess] += 1
        return table


def run():
    runner = Runner(Config)
    after_epoch = []
    for epoch in range(1, Config.epochs + 1):
        loss = runner.train_one_epoch()
        accuracy = runner.validate()
        after_epoch.append(torch.cuda.memory_allocated())
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.4f}")
    return runner, after_epoch


if __name__ == "__main__":
    runner, after_epoch = run()
    print("largest cell of the confusion table:", runner.confusion().max().item())
    late = after_epoch[Config.epochs // 2:]
    growth = (late[-1] - late[0]) // (len(late) - 1)
    print(f"TRUTH allocated_growth_per_iter={growth} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")

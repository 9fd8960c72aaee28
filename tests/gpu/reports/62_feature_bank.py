"""Training beside others on a shared GPU: the process may have 2 GiB. The features are kept for a plot after the epoch."""
import torch
from torch import nn
from torch.nn import functional as F

LIMIT, STEPS, BATCH, WIDTH = 2 << 30, 400, 4096, 2048


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(512, WIDTH)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        features = torch.sigmoid(self.body(x))
        return features, self.head(features)


class Run:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        self.bank = []
        self.allocated = []
        self.failed_at = None

    def step(self, x, y):
        self.optimizer.zero_grad()
        features, logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        self.optimizer.step()
        self.bank.append((features, y))
        return loss.item()

    def fit(self, batches):
        for number, (x, y) in enumerate(batches):
            try:
                self.step(x, y)
            except torch.OutOfMemoryError as error:
                self.failed_at = number
                print(f"step {number}: {str(error)[:200]}")
                return
            self.allocated.append(torch.cuda.memory_allocated())


def random_batches():
    for _ in range(STEPS):
        yield torch.randn(BATCH, 512, device="cuda"), torch.randint(0, 10, (BATCH,), device="cuda")


def main():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(LIMIT / total)
    run = Run(Net().cuda())
    run.fit(random_batches())
    allocated = run.allocated
    half = len(allocated) // 2
    rate = (allocated[-1] - allocated[half]) // (len(allocated) - 1 - half)
    print("out of memory at step:", run.failed_at)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

"""A thread makes augmented batches on the GPU, another trains on them. At most four batches wait between the two."""
import queue
import threading

import torch
from torch import nn
from torch.nn import functional as F

BATCHES, BATCH, FEATURES, CLASSES, WAITING = 60, 1024, 1024, 32, 4


def augmented():
    y = torch.randint(0, CLASSES, (BATCH,), device="cuda")
    x = torch.randn(BATCH, FEATURES, device="cuda")
    x[torch.arange(BATCH, device="cuda"), y] += 4.0
    return F.dropout(x, 0.1), y


class Producer(threading.Thread):
    def __init__(self, ready):
        super().__init__(name="producer", daemon=True)
        self.ready = ready

    def run(self):
        for _ in range(BATCHES):
            self.ready.put(augmented())
        self.ready.put(None)


class Consumer(threading.Thread):
    def __init__(self, ready):
        super().__init__(name="consumer")
        self.ready = ready
        self.model = nn.Sequential(nn.Linear(FEATURES, 4096), nn.ReLU(), nn.Linear(4096, CLASSES)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.allocated, self.losses = [], []
        self.warm = threading.Event()

    def train(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self):
        self.train(*augmented())
        self.warm.set()
        while True:
            item = self.ready.get()
            if item is None:
                return
            self.losses.append(self.train(*item))
            del item
            self.allocated.append(torch.cuda.memory_allocated())


def main():
    torch.manual_seed(0)
    ready = queue.Queue(maxsize=WAITING)
    producer, consumer = Producer(ready), Consumer(ready)
    consumer.start()
    consumer.warm.wait()
    before = torch.cuda.memory_allocated()
    producer.start()
    producer.join()
    consumer.join()
    after = torch.cuda.memory_allocated()
    print(f"loss from {consumer.losses[0]:.3f} to {consumer.losses[-1]:.3f}, "
          f"in use {min(consumer.allocated) >> 20} to {max(consumer.allocated) >> 20} MiB")
    print(f"TRUTH allocated_growth_per_iter={(after - before) // BATCHES} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

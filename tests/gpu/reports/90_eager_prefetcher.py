"""A prefetcher in a thread. For each request it prepares two batches, so that the next one is always there already."""
import queue
import threading

import torch
from torch import nn
from torch.nn import functional as F

STEPS, BATCH, SIDE, AHEAD = 60, 256, 64, 2


class Prefetcher:
    def __init__(self, prepare, ahead):
        self.prepare, self.ahead = prepare, ahead
        self.requests = queue.Queue()
        self.ready = queue.Queue()
        self.thread = threading.Thread(target=self.work, name="prefetch", daemon=True)
        self.thread.start()

    def work(self):
        while self.requests.get():
            for _ in range(self.ahead):
                self.ready.put(self.prepare())

    def next(self):
        self.requests.put(True)
        return self.ready.get()

    def close(self):
        self.requests.put(False)
        self.thread.join()


def prepare():
    """Pictures with a bright spot, and where it is."""
    places = torch.randint(8, SIDE - 8, (BATCH, 2), device="cuda")
    pictures = torch.randn(BATCH, SIDE, SIDE, device="cuda")
    rows = torch.arange(BATCH, device="cuda")
    pictures[rows, places[:, 0], places[:, 1]] += 20.0
    return pictures, places


class Locator(nn.Module):
    def __init__(self):
        super().__init__()
        width = SIDE * SIDE
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                    nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, pictures):
        return self.layers(pictures)


def train(locator, prefetcher):
    optimizer = torch.optim.AdamW(locator.parameters(), lr=1e-3)
    allocated = []
    for _ in range(STEPS):
        pictures, places = prefetcher.next()
        loss = F.smooth_l1_loss(locator(pictures), places / SIDE)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        distance = loss.item()
        allocated.append(torch.cuda.memory_allocated())
    return allocated, distance


def main():
    torch.manual_seed(0)
    prefetcher = Prefetcher(prepare, AHEAD)
    allocated, distance = train(Locator().cuda(), prefetcher)
    prefetcher.close()
    half = STEPS // 2
    rate = (allocated[-1] - allocated[half]) // (STEPS - 1 - half)
    print(f"distance {distance:.5f}, still waiting: {prefetcher.ready.qsize()}")
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

"""Looks for near duplicates. What does not fit into 3 GiB is done in halves, and each problem is noted for a summary."""
import torch
from torch import nn

LIMIT, COLLECTIONS, POINTS, RAW, FEATURES = 3 << 30, 8, 32768, 128, 256


class Deduplicator:
    def __init__(self):
        self.encoder = nn.Linear(RAW, FEATURES).cuda().requires_grad_(False)
        self.problems = []

    def embed(self, points):
        features = self.encoder(points)
        return features.tanh_()

    def closest(self, points):
        features = self.embed(points)
        scores = features @ features.T
        scores.fill_diagonal_(-1e9)
        return scores.amax(1)

    def run(self, points):
        """Similarity of each point to the one most like it, within a chunk as large as possible."""
        try:
            return self.closest(points)
        except torch.OutOfMemoryError as error:
            self.problems.append(error)
        half = len(points) // 2
        return torch.cat([self.run(points[:half]), self.run(points[half:])])

    def summary(self):
        lines = [str(problem).splitlines()[0][:90] for problem in self.problems]
        return f"{len(lines)} chunks were halved, first: {lines[0] if lines else '-'}"


def collection(seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(POINTS, RAW, device="cuda", generator=generator)


def duplicates(deduplicator, seed, threshold):
    return (deduplicator.run(collection(seed)) > threshold).sum().item()


def main():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(LIMIT / total)
    deduplicator, found, allocated = Deduplicator(), [], []
    for seed in range(COLLECTIONS):
        found.append(duplicates(deduplicator, seed, threshold=40.0))
        allocated.append(torch.cuda.memory_allocated())
    print("found:", found)
    print(deduplicator.summary())
    half = COLLECTIONS // 2
    rate = (allocated[-1] - allocated[half]) // (COLLECTIONS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

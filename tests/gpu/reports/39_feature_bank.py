"""Finds odd patches: a bank of features of good images, then the distance of new patches to their nearest in it."""
import torch
from torch import nn
from torch.nn import functional as F


class PatchDetector:
    def __init__(self, encoder, dim):
        self.encoder = encoder.eval()
        self.bank = torch.empty(0, dim, device="cuda")
        self.log = []

    @torch.no_grad()
    def embed(self, patches):
        return F.normalize(self.encoder(patches), dim=1)

    def fit(self, loader):
        for patches in loader:
            features = self.embed(patches)
            self.bank = torch.cat([self.bank, features], dim=0)
            self.log.append(torch.cuda.memory_allocated())
        return self

    @torch.no_grad()
    def score(self, patches, rows=8192):
        features = self.embed(patches)
        nearest = torch.full((len(features),), float("inf"), device="cuda")
        for start in range(0, len(self.bank), rows):
            distance = torch.cdist(features, self.bank[start:start + rows]).amin(1)
            nearest = torch.minimum(nearest, distance)
        return nearest


class Patches:
    """Patches of an image at a time, flattened."""

    def __init__(self, images, per_image, pixels):
        self.images, self.per_image, self.pixels = images, per_image, pixels

    def __len__(self):
        return self.images

    def __iter__(self):
        for _ in range(self.images):
            yield torch.rand(self.per_image, self.pixels, device="cuda")


def main():
    torch.manual_seed(5)
    encoder = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
    detector = PatchDetector(encoder, 512).fit(Patches(48, 1024, 1024))
    print("features in the bank:", tuple(detector.bank.shape))

    peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    scores = detector.score(torch.rand(1024, 1024, device="cuda"))
    print(f"score of the oddest patch: {scores.max().item():.4f}")

    half = len(detector.log) // 2
    rate = (detector.log[-1] - detector.log[half]) // (len(detector.log) - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={peak} reserved={reserved}")


if __name__ == "__main__":
    main()

"""Features of twelve clips with an image model of timm, then a table of how similar the clips are."""
import timm
import torch
from torch.nn import functional as F

CLIPS, FRAMES, SIDE = 12, 8, 128


def load_clip(number):
    """FRAMES pictures that differ a little from each other."""
    generator = torch.Generator(device="cuda").manual_seed(100 + number)
    still = torch.rand(1, 3, SIDE, SIDE, device="cuda", generator=generator)
    noise = torch.randn(FRAMES, 3, SIDE, SIDE, device="cuda", generator=generator)
    return (still + 0.1 * noise).sub_(0.45).div_(0.225)


class FeatureExtractor:
    def __init__(self, name="resnet18"):
        self.model = timm.create_model(name, pretrained=False, num_classes=0)
        self.model.cuda().eval()

    def __call__(self, clip):
        return self.model(clip)


def similarity_table(features):
    """Cosine similarity between the mean features of all clips."""
    means = F.normalize(torch.stack([clip.mean(0) for clip in features]), dim=1)
    return means @ means.T


def main():
    torch.manual_seed(12)
    extract, features, allocated = FeatureExtractor(), [], []
    for number in range(CLIPS):
        clip = load_clip(number)
        features.append(extract(clip))
        del clip
        torch.cuda.synchronize()
        allocated.append(torch.cuda.memory_allocated())
        print(f"clip {number:2d}: {tuple(features[-1].shape)}, {allocated[-1] >> 20} MiB in use")
    table = similarity_table(features)
    first, second = divmod(int((table - torch.eye(CLIPS, device="cuda")).argmax()), CLIPS)
    print(f"most alike: clips {first} and {second}")
    half = CLIPS // 2
    rate = (allocated[-1] - allocated[half]) // (CLIPS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


if __name__ == "__main__":
    main()

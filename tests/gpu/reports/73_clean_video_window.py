"""Action recognition on a stream of frames: the features of the last eight frames are looked at together."""
from collections import deque

import torch
from torch import nn

FRAMES, WINDOW, CHANNELS, SIDE = 60, 8, 32, 128


class FrameEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 7, stride=4, padding=3)
        self.refine = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, frame):
        return self.refine(torch.relu(self.stem(frame)))


class StreamingRecogniser(nn.Module):
    """Remembers the newest WINDOW feature maps, mixes them over time and classifies the mixture."""

    def __init__(self, classes=40):
        super().__init__()
        self.encoder = FrameEncoder()
        self.recent = deque(maxlen=WINDOW)
        self.importance = nn.Linear(CHANNELS, 1)
        self.classify = nn.Linear(CHANNELS, classes)

    def mix(self):
        clip = torch.stack(list(self.recent))
        pooled = clip.mean((2, 3))
        weights = self.importance(pooled).softmax(0)
        return (clip * weights[:, :, None, None]).sum(0)

    def forward(self, frame):
        features = self.encoder(frame[None])[0]
        self.recent.append(features)
        return self.classify(self.mix().mean((1, 2)))


def camera():
    torch.manual_seed(9)
    scene = torch.rand(3, 4 * SIDE, 4 * SIDE, device="cuda")
    while True:
        scene = scene.roll(3, dims=2)
        yield scene + 0.05 * torch.randn_like(scene)


def watch(recogniser, stream, frames):
    allocated, seen, number = [], {}, 0
    while number < frames:
        action = recogniser(next(stream)).argmax().item()
        seen[action] = seen.get(action, 0) + 1
        allocated.append(torch.cuda.memory_allocated())
        number += 1
    return allocated, seen


def main():
    recogniser = StreamingRecogniser().cuda().eval()
    with torch.inference_mode():
        allocated, seen = watch(recogniser, camera(), FRAMES)
    half = FRAMES // 2
    rate = (allocated[-1] - allocated[half]) // (FRAMES - 1 - half)
    print("actions:", dict(sorted(seen.items())))
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


if __name__ == "__main__":
    main()

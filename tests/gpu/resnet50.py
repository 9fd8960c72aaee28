"""ResNet-50, bf16 autocast, SGD: losses on stdout, step times and memory in `--json`."""

from common import arguments, emit, tensor_digest
from loop import OPTIONS, train, training_torch

options = arguments(steps=30, batch=32, **OPTIONS)
torch = training_torch(options)
from torch import nn


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up to four times the width, and the shortcut."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = width * 4
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, count, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        for index in range(count):
            layers.append(Bottleneck(inputs, width, stride if index == 0 else 1))
            inputs = width * 4
    return nn.Sequential(*layers)


class Classifier(nn.Module):
    """The trunk, a mean over the image (its gradient is deterministic), a linear layer."""

    def __init__(self):
        super().__init__()
        self.trunk = resnet50()
        self.head = nn.Linear(2048, 1000)

    def forward(self, x):
        return self.head(self.trunk(x).mean((2, 3)))


device = torch.device("cuda")
model = Classifier().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)


def inputs():
    images = torch.randn(options.batch, 3, 224, 224, device=device)
    return images, torch.randint(0, 1000, (options.batch,), device=device)


def step(images, labels):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


train(torch, options, inputs, step)
emit("weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))

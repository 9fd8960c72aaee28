"""A vision transformer of ViT-B/16's size, bf16 autocast, AdamW, images of another height and width
each step (multiples of 16 from 160 to 384). Losses on stdout, step times and memory in `--json`."""

import random

from common import arguments, emit, tensor_digest
from loop import OPTIONS, train, training_torch

options = arguments(steps=30, batch=64, layers=12, **OPTIONS)
torch = training_torch(options, strict=True)
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn import functional

WIDTH, HEADS, PATCH, GRID, CLASSES = 768, 12, 16, 24, 1000
"""GRID: places a side for which there is a position embedding; other sizes interpolate between them."""


class Block(nn.Module):
    """Attention among all patches and a feed-forward layer, each after a norm and around a residual."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, count, _ = x.shape
        q, k, v = (
            part.view(batch, count, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        )
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, count, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def between(count):
    """Weights that interpolate GRID places to `count`, as a matrix. As a product its gradient is the same
    in every run, which that of `interpolate` is not."""
    at = (torch.arange(count, dtype=torch.float32, device=device) + 0.5) * (GRID / count) - 0.5
    places = torch.arange(GRID, dtype=torch.float32, device=device)
    return (1 - (at.clamp(0, GRID - 1)[:, None] - places).abs()).clamp(min=0)


class Vit(nn.Module):
    """Patches with their places, the blocks, a norm, the mean over the image, classes."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.places = nn.Parameter(torch.randn(GRID, GRID, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(options.layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        batch, rows, columns = images.shape[0], images.shape[2] // PATCH, images.shape[3] // PATCH
        squares = images.reshape(batch, 3, rows, PATCH, columns, PATCH).permute(0, 2, 4, 1, 3, 5)
        places = (between(rows) @ self.places.reshape(GRID, -1)).reshape(rows, GRID, WIDTH)
        places = (between(columns) @ places).reshape(rows * columns, WIDTH)
        x = self.patches(squares.reshape(batch, rows * columns, -1)) + places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


device = torch.device("cuda")
model = Vit().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
sides = random.Random(7)


def inputs():
    height, width = (PATCH * sides.randint(10, 24) for _ in range(2))
    images = torch.randn(options.batch, 3, height, width, device=device)
    return images, torch.randint(0, CLASSES, (options.batch,), device=device)


def step(images, labels):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


train(torch, options, inputs, step)
emit("weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))

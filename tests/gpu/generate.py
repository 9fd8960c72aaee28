"""Generation by a decoder of GPT-2's size: prompts of random lengths, then one token a turn, with a cache of keys
and values that each layer makes anew, longer by one, as `torch.cat` does. A step is one batch of prompts.
The sum of its tokens, as its loss, on stdout, step times and memory in `--json`."""

import random

from common import arguments
from loop import OPTIONS, train, training_torch

options = arguments(steps=12, batch=16, layers=12, tokens=96, longest=512, **(OPTIONS | {"warmup": 3}))
torch = training_torch(options)

from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS = 50257, 768, 12


class Block(nn.Module):
    """Attention over what the cache holds, and a feed-forward layer."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, cache):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        )
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x)))), (k, v)


class Decoder(nn.Module):
    """Embeddings, blocks with their caches, the logits of the last place."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(2048, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(options.layers))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids, start, caches):
        x = self.tokens(ids) + self.places(torch.arange(start, start + ids.shape[1], device=ids.device))
        for at, block in enumerate(self.blocks):
            x, caches[at] = block(x, caches[at])
        return self.norm(x[:, -1]) @ self.tokens.weight.T


device = torch.device("cuda")
model = Decoder().to(device, torch.bfloat16).eval()
lengths = random.Random(7)


def inputs():
    length = lengths.randrange(options.longest // 8, options.longest)
    return (torch.randint(0, VOCABULARY, (options.batch, length), device=device),)


def step(ids):
    length = ids.shape[1]
    caches, total = [None] * options.layers, torch.zeros((), dtype=torch.long, device=device)
    for turn in range(options.tokens):
        logits = model(ids, 0 if turn == 0 else length + turn - 1, caches)
        ids = logits.argmax(dim=-1, keepdim=True)
        total += ids.sum()
    return total


with torch.inference_mode():
    train(torch, options, inputs, step)

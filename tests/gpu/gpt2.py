"""GPT-2 of 124 M parameters, bf16 autocast, AdamW, a random length each step; `--checkpoint`
recomputes activations. Losses on stdout, step times and memory in `--json`."""

import random

from common import arguments, emit, tensor_digest
from loop import OPTIONS, train, training_torch

options = arguments(steps=30, batch=8, longest=1024, layers=12, checkpoint=False, **OPTIONS)
torch = training_torch(options, strict=True)
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, HEADS = 50257, 768, 12


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and around a residual."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        )
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """Token and position embeddings, the blocks, a final norm, logits by the tied embedding."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(options.longest, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(options.layers))
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if options.checkpoint else block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


device = torch.device("cuda")
model = Gpt2().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
lengths = random.Random(6)


def inputs():
    length = lengths.randrange(options.longest // 8, options.longest)
    return (torch.randint(0, VOCABULARY, (options.batch, length + 1), device=device),)


def step(ids):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(ids[:, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    return loss


train(torch, options, inputs, step)
emit("weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))

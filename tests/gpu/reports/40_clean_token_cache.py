"""A small decoder that answers twelve requests; keys and values of each are put behind those of the tokens before."""
import random

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH = 8192, 512, 8, 4, 32
REQUESTS = 12


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)

    def forward(self, x, past):
        q, k, v = (self.split(part) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x)), (k, v)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, cache):
        x = self.embed(tokens)
        for number, layer in enumerate(self.layers):
            x, cache[number] = layer(x, cache[number])
        return self.head(x[:, -1])


@torch.inference_mode()
def stream(model, prompt, new_tokens):
    """Yields the tokens of all sequences, one position at a time."""
    cache = [None] * LAYERS
    tokens = prompt
    for _ in range(new_tokens):
        tokens = model(tokens, cache).argmax(-1, keepdim=True)
        yield tokens.squeeze(1).tolist()


def serve(model, prompt_length, new_tokens):
    prompt = torch.randint(0, VOCABULARY, (BATCH, prompt_length), device="cuda")
    return list(zip(*stream(model, prompt, new_tokens)))


def main():
    rng = random.Random(11)
    model, answers, allocated = Decoder().cuda().eval(), [], []
    for request in range(REQUESTS):
        answers.append(serve(model, rng.randint(32, 128), rng.randint(80, 160)))
        allocated.append(torch.cuda.memory_allocated())
        print(f"request {request}: {len(answers[-1])} sequences of {len(answers[-1][0])} tokens")
    half = REQUESTS // 2
    rate = (allocated[-1] - allocated[half]) // (REQUESTS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

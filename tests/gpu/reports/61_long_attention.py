"""How long a text may be for plain attention, without a fused kernel: the length is raised until it does not fit."""
import math
import time

import torch
from torch import nn

HEADS, DIM = 32, 2048
LENGTHS = (1024, 2048, 4096, 8192, 65536)


class PlainAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM, bias=False)

    def split(self, x):
        batch, length, _ = x.shape
        return x.view(batch, length, HEADS, DIM // HEADS).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.split(part) for part in self.qkv(x).chunk(3, dim=-1))
        scores = torch.matmul(q, k.transpose(-2, -1))
        weights = scores.mul_(1 / math.sqrt(DIM // HEADS)).softmax(-1)
        del scores
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(x.shape)
        return self.out(mixed)


@torch.inference_mode()
def measure(layer, length):
    x = torch.randn(1, length, DIM, device="cuda", dtype=torch.bfloat16)
    layer(x)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    layer(x)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def main():
    torch.manual_seed(0)
    layer = PlainAttention().to("cuda", torch.bfloat16).eval()
    allocated, longest = [], 0
    for length in LENGTHS:
        try:
            seconds = measure(layer, length)
        except torch.OutOfMemoryError as error:
            print(f"{length:6} tokens: out of memory. {str(error).splitlines()[0][:120]}")
            break
        longest = length
        print(f"{length:6} tokens: {1000 * seconds:.2f} ms")
        allocated.append(torch.cuda.memory_allocated())
    half = len(allocated) // 2
    rate = (allocated[-1] - allocated[half]) // max(1, len(allocated) - 1 - half)
    print("longest text that fits:", longest)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()} wanted={HEADS * LENGTHS[-1] ** 2 * 2}")


main()

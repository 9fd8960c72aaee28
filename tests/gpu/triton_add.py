"""Triton: a kernel of our own over tensors of several sizes."""

from common import arguments, deterministic_torch, emit, tensor_digest

import triton
import triton.language as tl

options = arguments()
torch = deterministic_torch()


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


for step in range(options.steps):
    n = 1000 * (step + 1) ** 3 + 17
    x = torch.randn(n, device="cuda")
    y = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    emit("add", n, tensor_digest(out), bool((out == x + y).all()))

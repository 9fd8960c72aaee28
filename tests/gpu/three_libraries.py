"""PyTorch trains, then CuPy and JAX compute, all in one process: `--phases` names which of them run.

What each phase made is freed at its end. CuPy's pool is off, so that it calls `cuMemAlloc` for every array. JAX runs
with `XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async`: its other allocators take memory by `cuMemCreate` (seen with JAX on CUDA
13), which no pool of the process can serve."""

import gc
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from common import arguments, deterministic_torch, emit

options = arguments(steps=6, phases="torch,cupy,jax")
MIB = 1 << 20


def torch_phase():
    """A multilayer perceptron under Adam: weights, moments and activations of several GiB."""
    torch = deterministic_torch()
    width, rows = 4096, 12288
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        inputs = torch.randn(rows - 1024 * (step % 4), width, device="cuda")
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        emit("torch", step, float(loss) > 0)
    del model, optimizer, inputs, loss
    gc.collect()
    torch.cuda.synchronize()


def cupy_phase():
    """Arrays of changing sizes, up to about 4 GiB at once."""
    import cupy

    cupy.cuda.set_allocator(None)
    for step in range(options.steps):
        count = (96 + 16 * (step % 5)) * MIB
        a = cupy.arange(count, dtype=cupy.float32)
        b = cupy.sqrt(a) + a[::-1]
        c = b.astype(cupy.float64)
        d = c * 2 + b
        emit("cupy", step, int((d[:1000] > 0).sum()))
        del a, b, c, d
    cupy.cuda.Device().synchronize()


def jax_phase():
    """Products of whole matrices, up to about 4 GiB at once."""
    import jax
    import jax.numpy as jnp

    work = jax.jit(lambda a: jnp.tanh(a @ a) + a)
    for step in range(options.steps):
        side = 8192 + 2048 * (step % 4)
        kept = [work(jnp.full((side, side), 1.0 / side, dtype=jnp.float32)) for _ in range(3)]
        emit("jax", step, all(bool((array[:8] > 0).all()) for array in kept))
        del kept
    gc.collect()


PHASES = {"torch": torch_phase, "cupy": cupy_phase, "jax": jax_phase}
for name in options.phases.split(","):
    PHASES[name]()

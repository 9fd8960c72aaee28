"""The training loop that all workloads share, and how it is timed.

A step is timed by the wall clock between two synchronisations: one after its inputs were made, one
after its optimizer step. Every configuration of the allocator is timed in this same way."""

import time

from common import deterministic_torch, emit, median, torch_figures, write_figures

MARK = 54321
"""Bytes of an allocation whose size nothing else has (all tensors here have an even size): where it
stands in a trace, the counted steps begin and end."""

OPTIONS = {"warmup": 10, "fast": False}
"""What every workload takes beside its own options: steps that do not count, and `--fast`."""


def training_torch(options, strict=False):
    """PyTorch with its seed set: the same bits in every run, or its defaults with `--fast`."""
    if not options.fast:
        return deterministic_torch(strict)
    import torch

    torch.manual_seed(1)
    return torch


def mark(torch):
    """Leaves the mark in the trace."""
    torch.empty(MARK, dtype=torch.uint8, device="cuda")


def train(torch, options, make_inputs, make_step):
    """Runs `warmup` and `steps` steps; losses on stdout, times in ms and memory in `--json`."""
    times = []
    for number in range(options.warmup + options.steps):
        if number == options.warmup:
            mark(torch)
        inputs = make_inputs()
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = make_step(*inputs)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
        emit("loss", number, loss.item())
    mark(torch)
    figures = torch_figures(torch)
    figures |= {
        "backend": torch.cuda.get_allocator_backend(),
        "median_step_ms": median(times[options.warmup:]), "first_step_ms": times[0], "steps_ms": times,
    }
    write_figures(options.json, figures)

"""The price of recording, of a workload of this folder: recording is paused in every third step, so that steps that are
neighbours in time are compared, and the time in gpushim's own code is read before and after each step.

    price.py PROGRAM [--json FILE] [--steps N] [the program's own options]

Runs under the preloaded shim. Every step has the same inputs, of the longest lengths that a few draws give."""

import ctypes
import runpy
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import loop
from common import emit, median, write_figures

NAMES = ctypes.PyDLL(None)
FIGURES = 9
"""Figures of `gpushim_stats`; the last two are ns in its own code and the calls in which they were spent."""


def own_time():
    figures = (ctypes.c_ulonglong * FIGURES)()
    if NAMES.gpushim_stats(figures, ctypes.c_size_t(FIGURES)) < FIGURES:
        raise SystemExit("price: this gpushim does not count its own time")
    return figures[FIGURES - 2], figures[FIGURES - 1]


def train(torch, options, make_inputs, make_step):
    """Takes the place of `loop.train`."""
    draws = [make_inputs() for _ in range(16)]
    inputs = max(draws, key=lambda tensors: sum(tensor.numel() for tensor in tensors))
    del draws
    steps = {True: [], False: []}
    ratios, triple = [], []
    for number in range(options.warmup + options.steps):
        is_recorded = number % 3 != 2
        (NAMES.gpushim_record if is_recorded else NAMES.gpushim_pause)()
        torch.cuda.synchronize()
        before, start = own_time(), time.perf_counter()
        make_step(*inputs)
        torch.cuda.synchronize()
        ns, after = (time.perf_counter() - start) * 1e9, own_time()
        if number < options.warmup:
            continue
        steps[is_recorded].append((ns, after[0] - before[0], after[1] - before[1]))
        triple = [*triple, ns][-3:]
        if not is_recorded and len(triple) == 3:
            ratios.append((triple[0] + triple[1]) / 2 / triple[2])
    NAMES.gpushim_record()
    figures = {}
    for is_recorded, name in ((True, "recorded"), (False, "paused")):
        own, calls = (sum(step[at] for step in steps[is_recorded]) for at in (1, 2))
        length = sum(step[0] for step in steps[is_recorded])
        figures[name] = {
            "steps": len(steps[is_recorded]), "median_step_ms": median([step[0] for step in steps[is_recorded]]) / 1e6,
            "calls_a_step": calls / len(steps[is_recorded]), "own_ns_a_call": own / max(calls, 1), "own_share": own / length,
        }
        print(name, {key: round(value, 4) for key, value in figures[name].items()}, flush=True)
    figures["recorded_over_paused"] = median(ratios)
    print(f"recorded / paused, median of {len(ratios)} triples: {figures['recorded_over_paused']:.4f}")
    emit("done")
    write_figures(options.json, figures)


if len(sys.argv) < 2:
    raise SystemExit(__doc__)
loop.train = train
program = sys.argv.pop(1)
sys.argv[0] = str(HERE / program)
runpy.run_path(sys.argv[0], run_name="__main__")

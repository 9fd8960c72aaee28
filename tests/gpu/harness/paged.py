"""Section `paged`: the `cudaMalloc` family natively, under `blocks` and under `vmm` in turn. What `vmm` would cost and save
as a default: the step, what NVML sees in use, and the same bits."""

import sys

from . import machine
from .bench import median
from .configurations import NATIVE, Configuration, missing
from .session import GPU

MIB = 1 << 20
ROUNDS = 3
BLOCKS = Configuration("blocks", {"GPUSHIM_POLICY": "blocks"}, True)
VMM = Configuration("vmm", {"GPUSHIM_POLICY": "vmm"}, True)
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
PROGRAMS = {
    "CuPy, tables": (["cupy_tables.py"], {}),
    "CuPy, weights and a cache": (["cupy_weights.py"], {}),
    "numba, lengths": (["numba_lengths.py"], {}),
    "PyTorch, cache off, GPT-2": (["gpt2.py", "--batch", "8", "--warmup", "3", "--steps", "12"], UNCACHED),
}


def run(session, built):
    """Three rounds of each program; a line for each."""
    rows = []
    for name, ((program, *rest), env) in PROGRAMS.items():
        runs = {one: [] for one in (NATIVE, BLOCKS, VMM)}
        peaks = {one: [] for one in runs}
        for _ in range(ROUNDS):
            for one in runs:
                with machine.DeviceMemory() as watch:
                    outcome = one.run(session, name, [sys.executable, GPU / program, *rest], env=env, timeout=60, figures=True)
                runs[one].append(outcome)
                peaks[one].append(watch.peak)
        first = [(one.name, outcomes[0]) for one, outcomes in runs.items()]
        if missing(session, "paged", name, first):
            continue
        good = {one: [o for o in outcomes if o.ok] for one, outcomes in runs.items()}
        step = {one: median([o.figures.get("median_step_ms") for o in some]) for one, some in good.items()}
        load = {one: median([o.figures.get("load_ms") for o in some]) for one, some in good.items()}
        same = len({o.stdout for some in good.values() for o in some}) == 1
        peak = {one: median(peaks[one]) // MIB for one in runs}
        detail = "; ".join(f"{one.name} {step[one]:.2f} ms, {peak[one]} MiB in use at most" for one in runs)
        if load[NATIVE]:
            detail += "; loading " + ", ".join(f"{load[one]:.0f}" for one in runs) + " ms"
        detail += "; the same results" if same else "; RESULTS DIFFER"
        session.result("paged", name, "PASS" if same else "FAIL", detail, step=[step[one] for one in runs], peak=list(peak.values()))
        rows.append([name, *(f"{step[one]:.2f}" for one in runs), *(peak[one] for one in runs)])
    session.table(
        "The cudaMalloc family: natively, in whole driver allocations, in pages",
        ["program", "step, ms: native", "blocks", "vmm", "in use at most, MiB: native", "blocks", "vmm"],
        rows,
    )

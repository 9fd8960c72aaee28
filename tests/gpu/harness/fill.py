"""Section `fill`: 40 GiB of tensors for the first time, by three allocators in turn."""

import sys

from .bench import median
from .configurations import EXPANDABLE, NATIVE, OURS, missing, printed
from .session import GPU

ROUNDS = 2
LIMIT = 1.5
"""What ours may take at most, times PyTorch's native allocator."""


def run(session, built, gib=40):
    """Alternating rounds; the verdict is on the median of the first fills."""
    times = {one: [] for one in (NATIVE, EXPANDABLE, OURS)}
    for _ in range(ROUNDS):
        for one in times:
            outcome = one.run(session, "fill", [sys.executable, GPU / "torch_fill.py", "--gib", str(gib)], timeout=90)
            if outcome.skipped and times[one]:
                continue
            if missing(session, "fill", f"{gib} GiB", [(one.name, outcome)]):
                return None
            if "first_s" not in printed(outcome):
                return session.result("fill", f"{gib} GiB", "FAIL", f"{one.name}: no figures: {outcome.stdout[-200:]}")
            times[one].append(printed(outcome))
    first = {one: median([run["first_s"] for run in runs]) for one, runs in times.items()}
    again = {one: median([run["again_s"] for run in runs]) for one, runs in times.items()}
    ratio = first[OURS] / first[NATIVE]
    detail = "; ".join(f"{one.name} {first[one]:.3f} s" for one in times)
    detail += f"; {ratio:.2f} x native, at most {LIMIT}; again after empty_cache: "
    detail += ", ".join(f"{again[one]:.3f}" for one in times)
    figures = {one.name: runs for one, runs in times.items()}
    session.result("fill", f"first {gib} GiB", "PASS" if ratio <= LIMIT else "FAIL", detail, **figures)
    return session.table(
        f"Filling {gib} GiB with {times[OURS][0]['tensors']} tensors of 512, 64, 20, 1 MiB and below 256 KiB",
        ["", "first, s", "again after empty_cache, s", "reserved, MiB"],
        [[one.name, f"{first[one]:.3f}", f"{again[one]:.3f}", times[one][0]["reserved"] >> 20] for one in times],
    )

"""Section `bench`: the price of a pair at each door, the shim alternating with the bare driver."""

import json
import sys

from . import machine, traces
from .session import GPU

ROUNDS = 2
# door, case, the most ns a pair may cost under the shim (None: shown only)
CASES = [
    ("driver", "complete", 100), ("driver", "mixed", None), ("driver", "ordered", 900), ("driver", "threads", 2000),
    ("shared", "complete", 120), ("shared", "mixed", None), ("shared", "ordered", 900), ("shared", "threads", 2000),
    ("static", "complete", None), ("static", "ordered", None), ("static", "threads", None),
]


def median(values):
    """The median of the values that exist; None for none."""
    ordered = sorted(v for v in values if v is not None)
    return ordered[len(ordered) // 2] if ordered else None


def once(session, door, case, shim, env=None, seconds="0.4"):
    """One run of bench_pair; its figures, or None."""
    argv = [session.work / f"bench_{door}", "--case", case, "--seconds", seconds]
    outcome = session.run(f"bench {door} {case}", argv, shim=shim, env=env, timeout=40)
    try:
        return json.loads(outcome.stdout), outcome
    except ValueError:
        return None, outcome


def sources(session, door, case):
    """How a short run's allocations were served, from its trace."""
    _, outcome = once(session, door, case, True, seconds="0.005")
    story = traces.read(session, outcome)
    return ", ".join(f"{count} {flag}" for flag, count in story.flags.most_common(5)) or "no flags"


def pair(session, door, case, limit):
    """One line of the table."""
    runs = {"native": [], "shim": []}
    for _ in range(ROUNDS):
        for kind in runs:
            runs[kind].append(once(session, door, case, kind == "shim")[0])
    good = {kind: [r for r in some if r] for kind, some in runs.items()}
    if not good["shim"] or not good["native"]:
        timed = "SKIP" if session.left() < 10 else "FAIL"
        return session.result("bench", f"{door} {case}", timed, "a run gave no figures (see the log)")
    ours, theirs = (median([r["pair_ns"] for r in good[kind]]) for kind in ("shim", "native"))
    tail = median([r["single_p99_ns"] for r in good["shim"]])
    failures = sum(r["failures"] for some in good.values() for r in some)
    fast = limit is None or ours <= limit
    status = "FAIL" if failures or not fast else "INFO" if limit is None else "PASS"
    detail = f"{ours:.0f} ns a pair (p99 {tail:.0f}), the driver {theirs:.0f}"
    if limit:
        detail += f"; at most {limit}"
    if failures:
        detail += f"; {failures} calls failed"
    detail += f"; {sources(session, door, case)}"
    return session.result("bench", f"{door} {case}", status, detail, runs=runs)


def run(session, built):
    """All cases, what forwarding costs, and PyTorch's own allocator beside them."""
    argv = [sys.executable, GPU / "torch_pair.py", "--build", session.work, "--cuda", machine.toolkit() or "/usr/local/cuda"]
    outcome = session.run("torch_pair", argv, timeout=150)
    try:
        figures = json.loads(outcome.stdout)
        session.result("bench", "PyTorch's allocator", "INFO", ", ".join(f"{k} {v:.0f}" for k, v in figures.items()), **figures)
    except ValueError:
        session.result("bench", "PyTorch's allocator", "SKIP" if outcome.skipped else "FAIL", outcome.stderr[-200:])
    for door, case, limit in CASES:
        if f"bench_{door}" in built:
            pair(session, door, case, limit)
    for name, env in (("policy off", {"GPUSHIM_POLICY": "off"}), ("trace off", {"GPUSHIM_TRACE": "off"})):
        figures, _ = once(session, "driver", "complete", True, env=env)
        if figures:
            session.result("bench", f"driver complete, {name}", "INFO", f"{figures['pair_ns']:.0f} ns a pair", **figures)

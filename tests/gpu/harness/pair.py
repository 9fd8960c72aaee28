"""Section `pair`: cuMemAllocAsync + cuMemFreeAsync that hits, at the driver door, with 1 to 10,000 live
blocks of mixed sizes: the driver's own pool, ours, ours without a trace, in turn; PyTorch's beside them. Then 8 threads at once."""

import json
import sys

from . import machine
from .bench import median
from .configurations import NATIVE, OURS, PLAIN, Configuration, printed
from .session import GPU

ROUNDS = 2
MOST_P50, MOST_P99, FLAT = 120, 1000, 1.25
"""Most ns of a pair in the middle and at the 99th percentile; p50 may vary by this factor from 100 to
10,000 live blocks."""

THREADS, CROWDED = 8, 1.5
"""So many threads take at most so many times as long for a pair as one."""

DRIVER = Configuration("driver")
POOL = Configuration("ours", shim=True)
NO_TRACE = Configuration("ours, trace off", {"GPUSHIM_TRACE": "off"}, True)
LIVE = (1, 100, 1000, 10000)


def lines(outcome, of="live"):
    """live, or threads -> figures, of what async_pair printed."""
    found = {}
    for line in outcome.stdout.splitlines():
        try:
            one = json.loads(line)
            found[one[of]] = one
        except (ValueError, KeyError, TypeError):
            continue
    return found


def typical(runs, live, kind=""):
    """The medians over the rounds: p50, p99, mean; None if there is no run. `kind`: "" or "same_"."""
    some = [run[live] for run in runs if live in run and f"{kind}p50" in run[live]]
    return {key: median([one[kind + key] for one in some]) for key in ("p50", "p99", "mean")} if some else None


def torch_pair(session, configuration):
    """PyTorch's allocator in some configuration; figures as live -> p50, p99, mean."""
    argv = [sys.executable, GPU / "torch_pair.py", "--build", session.work, "--cuda", machine.toolkit() or "/usr/local/cuda"]
    outcome = configuration.run(session, "torch_pair", argv, timeout=150)
    figures = printed(outcome)
    if not figures:
        session.result("pair", f"PyTorch's, {configuration.name}", "SKIP" if outcome.skipped else "FAIL", outcome.stderr[-200:])
        return {}
    detail = ", ".join(f"{name} {value:.0f}" for name, value in figures.items())
    session.result("pair", f"PyTorch's, {configuration.name}", "INFO", detail, **figures)
    return {
        live: {key: figures[f"live_{live}_{key}"] for key in ("p50", "p99", "mean")}
        for live in LIVE if f"live_{live}_p50" in figures
    }


def crowd(session, argv):
    """Pairs of several threads at once, beside those of one."""
    rows = []
    for one in (DRIVER, POOL, NO_TRACE):
        # The driver takes some microseconds for a pair of one thread, and many times that for one of eight.
        pairs = ["--pairs", "20000"] if one is DRIVER else []
        outcome = one.run(session, f"pair, {THREADS} threads", [*argv, *pairs, "--threads", str(THREADS)], timeout=60)
        found = lines(outcome, "threads")
        if 1 not in found or THREADS not in found:
            session.result("pair", f"{THREADS} threads, {one.name}", "SKIP" if outcome.skipped else "FAIL", outcome.stderr[-200:])
            continue
        for kind, sizes in (("same_mean", "one size"), ("mean", "seven sizes"), ("deep_mean", "twelve blocks")):
            alone, together = found[1][kind], found[THREADS][kind]
            rows.append([f"{one.name}, {sizes}", f"{alone:.0f}", f"{together:.0f}", f"{together / alone:.2f}"])
            if one is not DRIVER:
                detail = f"{together:.0f} ns, {alone:.0f} alone: {together / alone:.2f} x, at most {CROWDED}"
                session.result("pair", f"{THREADS} threads, {one.name}, {sizes}", "PASS" if together <= CROWDED * alone else "FAIL", detail)
    session.table("One pair of calls, each thread on its own stream: mean, ns", ["", "1 thread", f"{THREADS} threads", "ratio"], rows)


def cell(figures):
    """`p50 / p99 / mean`."""
    return " / ".join(f"{figures[key]:.0f}" for key in ("p50", "p99", "mean")) if figures else "-"


def run(session, built):
    """All of it, and the verdicts."""
    if "async_pair" not in built:
        session.result("pair", "build", "FAIL", "async_pair was not built")
        return
    argv = [session.work / "async_pair"]
    runs = {one: [] for one in (DRIVER, POOL, NO_TRACE)}
    for _ in range(ROUNDS):
        for one in runs:
            outcome = one.run(session, "pair", argv, timeout=60)
            if not outcome.ok:
                session.result("pair", one.name, "SKIP" if outcome.skipped else "FAIL", f"code {outcome.code}: {outcome.stderr[-200:]}")
            runs[one].append(lines(outcome))
    theirs = torch_pair(session, NATIVE)
    over_ours = torch_pair(session, OURS)
    legacy = lines(PLAIN.run(session, "pair, legacy stream", [*argv, "--legacy"], timeout=60))
    rows = []
    for kind, sizes in (("same_", "one size"), ("", "mixed sizes")):
        halves = {}
        for live in LIVE:
            ours, driver, bare = (typical(runs[one], live, kind) for one in (POOL, DRIVER, NO_TRACE))
            beside = (typical([legacy], live, kind), *((theirs.get(live), over_ours.get(live)) if not kind else (None, None)))
            rows.append([f"{live}, {sizes}", *(cell(one) for one in (driver, ours, bare, *beside))])
            if not ours:
                session.result("pair", f"{live} live, {sizes}", "FAIL", "no figures (see the log)")
                continue
            halves[live] = ours["p50"]
            fast = ours["p50"] <= MOST_P50 and ours["p99"] <= MOST_P99
            detail = f"p50 / p99 / mean {cell(ours)} ns, at most {MOST_P50} and {MOST_P99}; the driver {cell(driver)}; "
            detail += f"without a trace {cell(bare)}; PyTorch's own {cell(beside[1])}"
            session.result("pair", f"{live} live, {sizes}", "PASS" if fast else "FAIL", detail)
        flat = [halves[live] for live in LIVE if live >= 100 and live in halves]
        if len(flat) > 1:
            spread = max(flat) / min(flat)
            detail = f"p50 varies by {spread:.2f} x from 100 to 10,000 live, at most {FLAT}"
            session.result("pair", f"flat, {sizes}", "PASS" if spread <= FLAT else "FAIL", detail, p50=halves)
    session.table(
        "One pair of calls that hits: p50 / p99 / mean, ns (single pairs by the time stamp counter, nothing "
        "subtracted; the mean is of a loop without a clock)",
        ["live blocks", "driver's pool", "ours", "ours, trace off", "ours, legacy stream", "PyTorch's allocator", "PyTorch's backend over ours"],
        rows,
    )
    crowd(session, argv)

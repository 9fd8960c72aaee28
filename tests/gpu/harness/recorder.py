"""Sections `recorder`: what the trace says of a training, against what the training itself wrote down, and what an
event and a stack cost; and `costs`: what a training's steps cost then."""

import json
import os
import shutil
import subprocess
import sys

from .bench import median
from .configurations import NATIVE, OURS, PLAIN, Configuration, missing
from .session import GPU
from .traces import events_in

STACKS = {"GPUSHIM_STACKS": "all", "GPUSHIM_TRACE_SIZE": "256M"}
WANTED = ["main", "train_step", "Wide.forward", "Linear.forward"]
"""Functions that must be in the stacks, of torch_traced.py and of PyTorch."""
COSTS = {"ResNet-50": ["resnet50.py", "--batch", "128"], "GPT-2": ["gpt2.py", "--batch", "8"]}
LIGHT, FULL = 1.01, 1.01
"""What a step may take at most: with events, with full stacks, times the step without the shim."""
ROUNDS = 3
STEP_ROUNDS = 5
EVENT_NS = {"t=1": 40, "t=8": 150}
"""What an event may take, median, of threads that do nothing else."""
STACK_NS = 1500
"""What a stack may add to an allocation, median."""


def run(session, built):
    """First what it says, then what it costs."""
    for one, lens in ((PLAIN, True), (OURS, False)):
        says(session, one, lens)
    event(session)
    allocation(session)


def run_costs(session, built):
    """Whole steps."""
    for name, (program, *rest) in COSTS.items():
        costs(session, name, [*pinned(), sys.executable, GPU / program, *rest, "--fast", "--warmup", "10", "--steps", "60"])


def pinned():
    """Cores that all runs have in common: on a machine whose cores differ, what is compared is the same then."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", ",".join(map(str, cores[: len(cores) // 2]))] if len(cores) > 3 and shutil.which("taskset") else []


def events(session, path):
    """The events of a trace, with their stacks."""
    done = subprocess.run(
        [session.command, "events", "--stacks", "--format", "json", path], capture_output=True, text=True, timeout=120
    )
    return events_in(done.stdout)


def says(session, configuration, lens):
    """PyTorch's functions, phases and figures, in the trace."""
    name = "lens" if lens else "takeover"
    with_stacks = Configuration(configuration.name, configuration.env | STACKS, True)
    outcome = with_stacks.run(session, f"traced, {name}", [sys.executable, GPU / "torch_traced.py"], timeout=120)
    if missing(session, "recorder", name, [(configuration.name, outcome)]):
        return
    agreement, ranges, frames, seen = [], set(), {}, 0
    allocated = reserved = 0
    for event in (one for path in outcome.traces for one in events(session, path)):
        kind, size = event["kind"], event["size"]
        if lens and kind.startswith("tensor-"):
            allocated, reserved = event["allocated"], event["reserved"]
        elif not lens and event["class"] == "pool-async" and kind in ("alloc", "free"):
            allocated += size if kind == "alloc" else -size
        elif not lens and event["class"] == "pool-async" and kind in ("reserve", "release"):
            reserved += size if kind == "reserve" else -size
        if kind == "mark" and event["name"].startswith("truth "):
            told = [int(word) for word in event["name"].split()[1:]]
            agreement.append((told, [allocated, reserved]))
        if kind == "range-push":
            ranges.add(event["name"].split()[0])
        wanted = "tensor-alloc" if lens else "alloc"
        if kind == wanted and event.get("frames"):
            seen += 1
            functions = [frame["name"] for frame in event["frames"]]
            for function in functions:
                frames[function] = frames.get(function, 0) + 1
    # Reserved by the lens is as of the last tensor: an empty_cache in between shows with the next one.
    wrong = [pair for pair in agreement if pair[0][0] != pair[1][0]]
    held = [pair for pair in agreement if pair[0][1] != pair[1][1]]
    fine = len(agreement) > 15 and not wrong and len(held) <= (1 if lens else 0)
    detail = f"{len(agreement)} points; allocated differs at {len(wrong)}, reserved at {len(held)}; {wrong[:2]} {held[:2]}"
    session.result("recorder", f"{name}, memory_allocated and memory_reserved", "PASS" if fine else "FAIL", detail)
    session.result("recorder", f"{name}, phases", "PASS" if {"forward", "backward", "optimizer", "step"} <= ranges else "FAIL", str(sorted(ranges)))
    absent = [function for function in WANTED if function not in frames]
    top = ", ".join(f"{function[:50]} {count}" for function, count in sorted(frames.items(), key=lambda one: -one[1])[:14])
    python = sys.version.split()[0]
    session.result("recorder", f"{name}, functions", "PASS" if seen and not absent else "FAIL", f"Python {python}; {seen} stacks; absent: {absent}; {top}")


def events_of(session, path):
    """How many events a trace has recorded."""
    done = subprocess.run([session.command, "report", "--format", "json", path], capture_output=True, text=True, timeout=60)
    found = json.loads(done.stdout or "{}")
    return found.get("results", [{}])[0].get("summary", {}).get("events", {}).get("recorded", 0)


def costs(session, name, argv):
    """The step natively, with events, with full stacks, in turn."""
    stacks = Configuration("stacks", STACKS, True)
    runs, recorded = {NATIVE: [], PLAIN: [], stacks: []}, 0
    for _ in range(STEP_ROUNDS):
        for one, steps in runs.items():
            outcome = one.run(session, f"{name}, {one.name}", argv, timeout=90, figures=True)
            if outcome.ok and "median_step_ms" in outcome.figures:
                steps.append(outcome.figures["median_step_ms"])
            for path in outcome.traces:
                recorded = recorded or events_of(session, path)
                path.unlink(missing_ok=True)
    native, events_, full = (median(steps) or 0 for steps in runs.values())
    if not (native and events_ and full) or len({len(steps) for steps in runs.values()}) > 1:
        session.result("costs", f"{name}, cost", "FAIL", f"no figures: {list(runs.values())}")
        return
    # Machines drift: what is compared is each round with itself.
    first, *others = runs.values()
    light, heavy = (median([ours / alone for ours, alone in zip(steps, first)]) for steps in others)
    rounds = "; ".join(" ".join(f"{step:.2f}" for step in steps) for steps in runs.values())
    detail = (
        f"{native:.2f} ms natively, median; events {events_:.2f}; full stacks {full:.2f}; by the median of the rounds' ratios "
        f"{light:.3f} x, at most {LIGHT}, and {heavy:.3f} x, at most {FULL}; {recorded} events in the run; round by round {rounds}"
    )
    session.result("costs", f"{name}, cost", "PASS" if light <= LIGHT and heavy <= FULL else "FAIL", detail)


def event(session):
    """An event on this machine's processor, by `cargo bench --bench trace`, which scripts/dist --bench has built."""
    bench = session.dist / "bench-trace"
    if not bench.exists():
        session.result("recorder", "an event", "SKIP", "no bench-trace beside the shim: scripts/dist --bench builds it")
        return
    outcome = session.run("bench-trace", [bench, "--bench"], timeout=90)
    rows = list(medians(outcome.stdout))
    wrong = [f"{name} {threads}" for name, threads, ns in rows if name == "record_1000" and ns > EVENT_NS[threads]]
    fine = outcome.ok and len(rows) >= len(EVENT_NS) and not wrong
    detail = "; ".join(f"{name} {threads} {ns:.1f}" for name, threads, ns in rows)
    limits = ", ".join(f"{threads}: {ns}" for threads, ns in EVENT_NS.items())
    session.result("recorder", "an event, ns", "PASS" if fine else "FAIL", f"{detail}; at most {limits}")


def medians(text):
    """Bench, threads and median ns of one of its thousand events, of divan's table."""
    units = {"ns": 1, "µs": 1e3, "ms": 1e6}
    name = argument = ""
    for line in text.splitlines():
        words = line.replace("│", " ").replace("├─", " ").replace("╰─", " ").split()
        if not words:
            continue
        if not words[0].startswith("t="):
            if words[0].isdigit():
                argument = f" {words[0]}"
            else:
                name, argument = words[0], ""
        elif len(words) >= 7:
            # Fastest, slowest, median, mean: a figure and its unit each.
            figure, unit = words[5], words[6]
            yield name + argument, words[0], float(figure) * units[unit] / 1000


def allocation(session):
    """A tensor made and dropped in a training's depth of calls: natively, by PyTorch's own history, by our trace."""
    argv = [sys.executable, GPU / "torch_alloc_cost.py"]
    stacks = Configuration("stacks", STACKS, True)
    ways = {
        "native": (NATIVE, []),
        "history": (NATIVE, ["--history"]),
        "events": (PLAIN, []),
        "stacks": (stacks, []),
    }
    seen, frames = {name: [] for name in ways}, []
    for _ in range(ROUNDS):
        for name, (one, more) in ways.items():
            outcome = one.run(session, f"allocation, {name}", [*argv, *more], timeout=60, figures=True)
            seen[name] += [outcome.figures[key] for key in ("pair_ns",) if outcome.ok and key in outcome.figures]
            if name == "stacks" and not frames:
                found = (one for path in outcome.traces for one in events(session, path))
                frames = [len(one["frames"]) for one in found if one["kind"] == "tensor-alloc" and one.get("frames") and one["size"] == 4608]
            for path in outcome.traces:
                path.unlink(missing_ok=True)
    native, history, light, full = (median(figures) or 0 for figures in seen.values())
    if not (native and history and light and full and frames):
        session.result("recorder", "a stack", "FAIL", f"no figures: {seen}, {len(frames)} stacks")
        return
    cost = full - light
    detail = (
        f"a tensor made and dropped: {native:.0f} ns natively, with events {light:.0f}, with stacks of {median(frames):.0f} frames "
        f"{full:.0f}: {cost:.0f} more, at most {STACK_NS}; PyTorch's history with all stacks {history:.0f}: {history - native:.0f} more"
    )
    session.result("recorder", "a stack, ns", "PASS" if cost <= STACK_NS and median(frames) >= 40 else "FAIL", detail)

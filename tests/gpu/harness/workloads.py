"""Section `workloads`: four trainings and a generation by PyTorch's native allocator, by its expandable segments and by
ours in turn. Ours must be as fast as the better of the two, hold hardly more than is allocated, less than
either, and compute the same bits."""

import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

from . import machine, survey
from .bench import median
from .configurations import EXPANDABLE, NATIVE, OURS, missing
from .rounds import typical_step
from .session import GPU

MIB = 1 << 20
ROUNDS = 3
ROUNDS_OF_ONE = 5
"""Rounds if all workloads run, and if one of them does. The generation takes too long for more than the first."""
WARM_UP, STEPS = 10, 30
FEWER = {"Generation": (4, 12)}
"""Steps that do not count, and those that do; fewer where one takes a second."""
CONFIGURATIONS = (NATIVE, EXPANDABLE, OURS)
WORKLOADS = {
    # Batches such that a step takes 50 to 100 ms on an H100 and a run below 10 s.
    "ResNet-50": ["resnet50.py", "--batch", "128"],
    "GPT-2": ["gpt2.py", "--batch", "8"],
    "GPT-2, checkpointing": ["gpt2.py", "--batch", "8", "--checkpoint"],
    "ViT": ["vit.py", "--batch", "64"],
    "Generation": ["generate.py"],
}
SLOWER, MORE = 1.01, 1.015
"""What ours may take at most: times the better step of the others, times what is allocated."""


class Runs:
    """The runs of one configuration of one workload."""

    def __init__(self, configuration, name):
        self.configuration, self.outcomes, self.device_peak, self.survey = configuration, [], 0, None
        self.warm_up, self.counted = FEWER.get(name, (WARM_UP, STEPS))

    def options(self):
        """How many steps the program takes."""
        return ["--warmup", str(self.warm_up), "--steps", str(self.counted)]

    def once(self, session, name, argv):
        """One more run. The first one is watched through NVML, and its trace is read."""
        if self.outcomes:
            outcome = self.configuration.run(session, name, argv, timeout=60, figures=True)
        else:
            with machine.DeviceMemory() as watch:
                outcome = self.configuration.run(session, name, argv, timeout=90, figures=True)
            self.device_peak = watch.peak
            if outcome.traces:
                self.survey = survey.read(session, outcome)
        self.outcomes.append(outcome)
        for path in outcome.traces:
            # 64 MiB each, and not asked for again.
            pathlib.Path(path).unlink(missing_ok=True)

    def figure(self, name):
        """The median over the rounds, or 0."""
        return median([o.figures.get(name) for o in self.outcomes if o.ok]) or 0

    def steps(self):
        """The median step of each round, ms."""
        return [o.figures["median_step_ms"] for o in self.outcomes if o.ok and "median_step_ms" in o.figures]

    def step(self, most):
        """Its typical step, ms, by the fastest round of each step, of so many rounds."""
        rounds = [o.figures["steps_ms"] for o in self.outcomes if o.ok and "steps_ms" in o.figures]
        return typical_step(rounds[:most], self.warm_up)

    def brief(self):
        """For results.json."""
        return {
            "step_ms": self.steps(), "fastest_of_all_rounds_ms": self.step(len(self.outcomes)), "allocated": self.figure("max_memory_allocated"),
            "reserved": self.figure("max_memory_reserved"), "device_peak": self.device_peak,
            "trace": self.survey.brief() if self.survey else None,
        }


def run(session, built, only=None):
    """Round by round, so that a cut-off run has whole rounds; neighbours in time are compared. `only`: one workload."""
    table = {name: [Runs(one, name) for one in CONFIGURATIONS] for name in WORKLOADS if only in (None, name)}
    for _ in range(ROUNDS_OF_ONE if only not in (None, "Generation") else ROUNDS):
        for name in table:
            program, *rest = WORKLOADS[name]
            for runs in table[name]:
                runs.once(session, name, [sys.executable, GPU / program, *rest, *runs.options(), "--fast"])
    rows = [judge(session, name, *runs) for name, runs in table.items()]
    session.table(
        "Training: PyTorch's native allocator, its expandable segments, ours",
        ["workload", "step, ms (the fastest round of each step): native", "expandable", "ours", "ours / better", "peak allocated, MiB", "peak reserved, MiB: native",
         "expandable", "ours", "ours / allocated", "device in use at most, MiB: native, expandable, ours", "rounds"],
        [row for row in rows if row],
    )
    deterministic(session, table)


def finished(runs):
    """Only what ended well, unless nothing did: rounds that were cut off by the clock do not count."""
    good = [o for o in runs.outcomes if o.ok]
    return all(o.ok or o.skipped or o.is_cut_off for o in runs.outcomes) and bool(good)


def medians(runs):
    """The median step of each round."""
    return " ".join(f"{one:.1f}" for one in runs.steps())


def judge(session, name, native, expandable, ours):
    """The verdicts on one workload; its row of the table, or None."""
    for runs in (native, expandable, ours):
        if not finished(runs):
            bad = next(o for o in runs.outcomes if not o.ok)
            missing(session, "workloads", name, [(runs.configuration.name, bad)])
            return None
        if not runs.steps():
            session.result("workloads", name, "FAIL", f"{runs.configuration.name}: no figures")
            return None
    brief = {runs.configuration.name: runs.brief() for runs in (native, expandable, ours)}
    backend = ours.outcomes[0].figures.get("backend")
    if backend != "cudaMallocAsync":
        session.result("workloads", f"{name}, takeover", "FAIL", f"the backend is {backend}: nothing was taken over")
    rounds = min(len(runs.steps()) for runs in (native, expandable, ours))
    step = {runs: runs.step(rounds) for runs in (native, expandable, ours)}
    ratio = step[ours] / min(step[native], step[expandable])
    detail = (
        f"{step[ours]:.2f} ms, native {step[native]:.2f}, expandable {step[expandable]:.2f}: {ratio:.3f} x the better, "
        f"at most {SLOWER}; medians of the rounds: {medians(native)}; {medians(expandable)}; {medians(ours)}"
    )
    session.result("workloads", f"{name}, step", "PASS" if ratio <= SLOWER else "FAIL", detail, **brief)

    allocated, held = ours.figure("max_memory_allocated"), ours.figure("max_memory_reserved")
    share = held / allocated if allocated else 0
    detail = f"{held // MIB} MiB reserved for {allocated // MIB} allocated: {share:.3f} x, at most {MORE}"
    detail += f"; device in use at most {ours.device_peak // MIB}"
    session.result("workloads", f"{name}, reserved", "PASS" if 0 < share <= MORE else "FAIL", detail)
    theirs = [runs.figure("max_memory_reserved") for runs in (native, expandable)]
    detail = f"{held // MIB} MiB, native {theirs[0] // MIB}, expandable {theirs[1] // MIB}"
    fewer = 0 < held < min(theirs)
    session.result("workloads", f"{name}, below both", "PASS" if fewer else "FAIL", detail)
    calls_per_step(session, name, ours.survey)
    peaks = ", ".join(str(runs.device_peak // MIB) for runs in (native, expandable, ours))
    return [
        name, *(f"{step[runs]:.1f}" for runs in (native, expandable, ours)), f"{ratio:.3f}", allocated // MIB,
        theirs[0] // MIB, theirs[1] // MIB, held // MIB, f"{share:.3f}", peaks, rounds,
    ]


def calls_per_step(session, name, seen):
    """Driver calls for memory after the warm-up: none where sizes repeat, shown where they vary."""
    strict = name == "ResNet-50"
    if seen is None or seen.marks < 2 or seen.errors:
        why = "no trace" if seen is None else f"{seen.marks} marks; {'; '.join(seen.errors)}"
        session.result("workloads", f"{name}, driver calls", "FAIL", why)
        return
    calls = seen.driver_calls()
    status = ("PASS" if calls == 0 else "FAIL") if strict else "INFO"
    listed = ", ".join(f"{count} {what}" for what, count in seen.calls.most_common()) or "none of any kind"
    detail = f"{calls} for device memory in the counted steps: {listed}; {seen.allocations['pool-async']} allocations in all"
    session.result("workloads", f"{name}, driver calls", status, detail, **seen.brief())


def deterministic(session, names):
    """The same bits natively and with ours; several at a time, since nothing is timed."""
    steps = ["--warmup", "2", "--steps", "8"]

    def one(name):
        program, *rest = WORKLOADS[name]
        argv = [sys.executable, GPU / program, *rest, *steps]
        return [each.run(session, f"{name}, deterministic", argv, timeout=90, figures=True) for each in (NATIVE, OURS)]

    with ThreadPoolExecutor(max_workers=4) as pool:
        for name, (native, ours) in zip(names, pool.map(one, names)):
            if missing(session, "workloads", f"{name}, losses", [("native", native), ("ours", ours)]):
                continue
            counted = sum(line.startswith("loss ") for line in native.stdout.splitlines())
            same = native.stdout == ours.stdout and counted == 10
            detail = f"{counted} steps' results and what is left, {'equal to the bit' if same else 'DIFFERENT'}"
            session.result("workloads", f"{name}, losses", "PASS" if same else "FAIL", detail)

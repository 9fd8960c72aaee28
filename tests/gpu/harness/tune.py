"""Section `tune`: a replay holds what the run held under the same policy, and a run with the settings that
`gpushim tune` advises holds what was predicted.

What the command said is kept in `tune/` of the output folder."""

import json
import subprocess
import sys

from . import situations
from .configurations import OURS, Configuration, missing
from .jobs import together
from .session import GPU

STEPS = ["--warmup", "2", "--steps", "22", "--fast"]
WORKLOADS = {
    "ResNet-50": ["resnet50.py", "--batch", "128"],
    "GPT-2": ["gpt2.py", "--batch", "8"],
    "GPT-2, checkpointing": ["gpt2.py", "--batch", "8", "--checkpoint"],
}
TUNED = ("ResNet-50", "GPT-2")
"""Workloads that run once more, as advised."""
POLICIES = ("vmm", "blocks")
BASES = ("vmm", "blocks")
"""Policies whose recordings the advice is made from."""
FAITHFUL, PREDICTED = 0.01, 0.02
"""How far a peak may be from the recorded one: of a replay with the same policy, and of a prediction."""
AT_A_TIME = 3
"""Nothing is timed; together they hold some 40 GiB."""
MIB = 1 << 20


class Wrong(Exception):
    """The command did not do what was asked."""


def run(session, built):
    """All recordings first, then the runs as advised."""
    (session.out / "tune").mkdir(exist_ok=True)
    traces = {}
    together(session, "tune", {
        f"{name}, {policy}": lambda name=name, policy=policy: replay(session, name, policy, traces)
        for name in WORKLOADS for policy in POLICIES
    }, AT_A_TIME)
    together(session, "tune", {
        f"{name}, advice": lambda name=name: advice(session, name, {base: traces.get((name, base)) for base in BASES})
        for name in TUNED
    }, AT_A_TIME)


def record(session, name, label, env, steps=STEPS):
    """A run of a workload under takeover with these settings; its outcome."""
    program, *rest = WORKLOADS[name]
    ours = Configuration(label, OURS.env | env, True)
    argv = [sys.executable, GPU / program, *rest, *steps]
    return ours.run(session, f"tune, {name}", argv, timeout=90, figures=True)


def ask(session, shown, line):
    """What a subcommand says as JSON; kept, with its text, in `tune/`."""
    try:
        text = situations.gpushim(session, line)
        done = situations.gpushim(session, [line[0], "--format", "json", *line[1:]])
    except (OSError, subprocess.SubprocessError) as error:
        raise Wrong(f"{line[0]}: {error}"[:300]) from error
    folder = session.out / "tune"
    (folder / f"{shown}.txt").write_text(f"$ gpushim {' '.join(map(str, line))}\n{text.stdout}{text.stderr}", encoding="utf-8")
    (folder / f"{shown}.json").write_text(done.stdout, encoding="utf-8")
    if done.returncode not in (0, 1):
        raise Wrong(f"gpushim {line[0]}: exit code {done.returncode}: {done.stderr.strip()[-200:]}")
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise Wrong(f"gpushim {line[0]}: {error}") from error


def replayed(session, shown, traces, policy):
    """The process that held most: its trace, the peak that it recorded, and that of a replay."""
    found = []
    for number, trace in enumerate(traces):
        said = ask(session, f"{shown}-{number}", ["replay", "--of", "memory", "--policy", policy, trace])
        for finding in said["results"]:
            if finding["wrapped"]:
                raise Wrong(f"{trace}: the beginning of the run is no longer in the trace")
            found += [
                (device["recorded_reserved"] or 0, device["policies"][0]["peak_reserved"], trace, device["requests"])
                for device in finding["devices"]
            ]
    if not found:
        raise Wrong(f"{len(traces)} traces without requests")
    return max(found, key=lambda one: one[0])


def away(seen, expected):
    """By which part a size is away from another."""
    return abs(seen - expected) / expected if expected else 1.0


def is_ours(session, name, outcome):
    """Whether the run ended well and allocated from our pool; else a line says why not."""
    if missing(session, "tune", name, [(OURS.name, outcome)]):
        return False
    backend = outcome.figures.get("backend")
    if backend != "cudaMallocAsync":
        session.result("tune", name, "FAIL", f"the backend is {backend}: nothing was taken over")
        return False
    return True


def stem(name, more):
    """A file name: `gpt2-checkpointing-vmm`."""
    return "-".join([name.lower().replace("-", "").replace(",", "").replace(" ", "-"), more])


def replay(session, name, policy, traces):
    """Records under a policy and replays with the same."""
    title = f"{name}, replay of {policy}"
    outcome = record(session, name, policy, {"GPUSHIM_POLICY": policy})
    if not is_ours(session, title, outcome):
        return
    try:
        recorded, peak, trace, requests = replayed(session, stem(name, policy), outcome.traces, policy)
    except (Wrong, KeyError, IndexError, TypeError) as error:
        session.result("tune", title, "FAIL", f"{type(error).__name__}: {error}")
        return
    traces[name, policy] = trace
    off = away(peak, recorded)
    torch = outcome.figures.get("max_memory_reserved", 0)
    detail = (
        f"replay {peak / MIB:.1f} MiB, recorded {recorded / MIB:.1f}: {100 * off:.2f} % away, at most {100 * FAITHFUL:g}; "
        f"PyTorch says {torch / MIB:.1f} MiB; {requests} requests"
    )
    session.result("tune", title, "PASS" if off <= FAITHFUL else "FAIL", detail, replay=peak, recorded=recorded, torch=torch)


def advice(session, name, traces):
    """Asks for advice on each recording, and carries it out once for each that differs."""
    lines = {}
    for base, trace in traces.items():
        title = f"{name}, advice from {base}"
        if trace is None:
            session.result("tune", title, "FAIL", "there is no recording")
            continue
        try:
            said = ask(session, stem(name, f"advice-{base}"), ["tune", "--of", "memory", trace])
            said = said["results"][0]
            advised = said["advice"]
            lines.setdefault(advised["line"], []).append((title, advised, said["confidence"]["sentence"]))
        except (Wrong, KeyError, TypeError) as error:
            session.result("tune", title, "FAIL", f"{type(error).__name__}: {error}")
    for number, (line, cases) in enumerate(sorted(lines.items())):
        environment = cases[0][1]["environment"]
        outcome = record(session, name, f"as advised {number}", environment)
        for title, advised, sentence in cases:
            if is_ours(session, title, outcome):
                carried_out(session, title, stem(name, f"advised-{number}"), line, advised, sentence, outcome)


def carried_out(session, title, shown, line, advised, sentence, outcome):
    """The verdict on a prediction."""
    try:
        seen = replayed(session, shown, outcome.traces, advised["policy"].replace("auto", "vmm"))[0]
        predicted, saves = advised["peak_reserved"], advised["saves"]
        off = away(seen, predicted)
        detail = (
            f"`{line}`: predicted {predicted / MIB:.1f} MiB, held {seen / MIB:.1f}: {100 * off:.2f} % away, at most {100 * PREDICTED:g}; "
            f"{saves['bytes'] / MIB:.1f} MiB less than recorded, predicted; {sentence}"
        )
    except (Wrong, KeyError, TypeError) as error:
        session.result("tune", title, "FAIL", f"{type(error).__name__}: {error}")
        return
    session.result("tune", title, "PASS" if off <= PREDICTED else "FAIL", detail, predicted=predicted, held=seen, environment=line)

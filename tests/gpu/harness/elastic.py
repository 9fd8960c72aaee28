"""Section `elastic`: PyTorch's own allocator on elastic segments prints what it prints natively; and two processes that need
the GPU's memory in turn both have it."""

import sys

from .basics import first_difference
from .configurations import NATIVE, UNEXPANDABLE, Configuration, missing, said
from .jobs import together
from .session import GPU

PROGRAMS = {
    # name -> program and its arguments
    "features": ["torch_elastic_features.py"],
    "graphs replayed": ["torch_replays.py"],
    "graph of a step": ["torch_graph.py"],
    "reduce-overhead": ["torch_compile.py", "--only", "reduce-overhead", "--steps", "1000", "--churn"],
}
PLAIN = {"GPUSHIM_POLICY": "off"}
AUTO, ON = PLAIN | {"GPUSHIM_ELASTIC": "auto"}, PLAIN | {"GPUSHIM_ELASTIC": "on"}
# Elastic memory is in expandable segments unless PyTorch is told otherwise.
WAYS = (
    Configuration("auto", AUTO, True),
    Configuration("on", ON, True),
    Configuration("auto, default segments", UNEXPANDABLE | AUTO, True),
    Configuration("on, default segments", UNEXPANDABLE | ON, True),
)


def run(session, built):
    """The programs at a time, as nothing is timed; the two processes have the GPU alone."""
    together(session, "elastic", {name: lambda name=name: equal(session, name) for name in PROGRAMS})
    turns(session)


def equal(session, name):
    """A program's output natively and in each way."""
    program, *rest = PROGRAMS[name]
    argv = [sys.executable, GPU / program, *rest]
    natively = NATIVE.run(session, name, argv, timeout=150)
    for way in WAYS:
        label, outcome = f"{name}, {way.name}", way.run(session, name, argv, timeout=150)
        if missing(session, "elastic", label, [("native", natively), (way.name, outcome)]):
            continue
        problems = said(outcome)[:1]
        if natively.stdout != outcome.stdout:
            problems.append("output differs: " + first_difference(natively.stdout, outcome.stdout))
        if not natively.stdout:
            problems.append("no output")
        lines = f"{len(outcome.stdout.splitlines())} lines equal natively, {natively.seconds:.1f} s -> {outcome.seconds:.1f} s"
        session.result("elastic", label, "FAIL" if problems else "PASS", "; ".join(problems or [lines]))


def turns(session):
    """torch_turns.py judges itself."""
    argv = [sys.executable, GPU / "torch_turns.py", "--library", session.dist / "libgpushim.so"]
    outcome = session.run("two processes in turn", argv, timeout=240)
    if outcome.skipped:
        session.result("elastic", "two processes in turn", "SKIP", "no time left")
        return
    lines = outcome.stdout.splitlines()
    fine = outcome.ok and any("elastic on" in line and "ended, equal" in line for line in lines)
    detail = " / ".join(lines[2:]) or outcome.stderr.strip()[-200:] or "no output"
    session.result("elastic", "two processes in turn", "PASS" if fine else "FAIL", detail)

"""Section `autopsies`: a request that runs out of memory in a thread, with nobody who catches the error, and with the command
missing. That the text names each cause, section `shortages` says. One at a time: each takes the whole device."""

import sys

from .configurations import missing
from .session import GPU
from .shortages import AUTOPSY, NAMED, STACKS, Wrong, attempt, autopsy, each

NATIVE, ERROR = "the error and the exit code are native", "OutOfMemoryError: CUDA out of memory."


def run(session, built):
    checks = {f"{name}, in a thread": lambda name=name: in_a_thread(session, name) for name in ("full", "growth")}
    each(session, "autopsies", checks | {NATIVE: lambda: is_native(session)})


def in_a_thread(session, name):
    """Memory runs out in a thread that is not the first."""
    outcome = attempt(session, name, ["--thread"], STACKS | AUTOPSY)
    if missing(session, "autopsies", f"{name}, in a thread", [(name, outcome)]):
        return None
    if "ran out" not in outcome.stdout:
        raise Wrong(f"memory did not run out: {outcome.stdout[-100:]}")
    return autopsy(outcome, NAMED[name])


def is_native(session):
    """An error that nobody catches is the same natively, with an autopsy, and with a command that is not there."""
    argv = [sys.executable, GPU / "shortage.py", "full", "--uncaught"]
    ways = {"native": None, "autopsy": AUTOPSY, "missing command": {"GPUSHIM_AUTOPSY": "/no/such/gpushim"}}
    runs = {way: session.run(f"uncaught: {way}", argv, shim=more is not None, env=more, timeout=60) for way, more in ways.items()}
    if any(outcome.skipped for outcome in runs.values()):
        session.result("autopsies", NATIVE, "SKIP", "no time left")
        return None
    codes = {way: outcome.code for way, outcome in runs.items()}
    if set(codes.values()) != {1} or any(ERROR not in outcome.stderr for outcome in runs.values()):
        raise Wrong(f"exit codes {codes}, or an error that is not PyTorch's own: {runs['autopsy'].stderr[-300:]}")
    if "gpushim:" in runs["missing command"].stderr:
        raise Wrong(f"without the command it says: {runs['missing command'].stderr[-300:]}")
    return f"exit code 1 and PyTorch's error in all. {autopsy(runs['autopsy'], NAMED['full'])}"

"""Section `shortages`: memory runs out for each reason on purpose; `gpushim oom` names the cause, and its advice, once
followed, lets the program end. The autopsy names the same cause within a second. One at a time: each takes the whole
device."""

import json
import re
import sys

from . import situations
from .configurations import missing
from .session import GPU
from .situations import STACKS, Wrong

ENVIRONMENT = {"our-limit": {"GPUSHIM_LIMIT": "4096M"}}
"""What makes memory run out, where that is not the program itself."""
KINDS = {
    # case of tests/gpu/shortage.py -> the cause that oom gives, and where
    "too-large": ("too-large", None), "our-limit": ("our-limit", None), "framework-limit": ("framework-limit", None),
    "growth": ("growth", None), "fragmentation": ("fragmentation", None), "cached-framework": ("cached-elsewhere", "framework"),
    "cached-pool": ("cached-elsewhere", "pool"), "cached-stream": ("cached-elsewhere", "stream"),
    "other-processes": ("other-processes", None), "full": ("full", None),
}
AUTOPSY = {"GPUSHIM_AUTOPSY": "1"}
NAMED = {
    # case -> what the autopsy calls its cause
    "too-large": "a request of this size", "our-limit": "GPUSHIM_LIMIT", "framework-limit": "PyTorch's own limit",
    "growth": "the blocks that iterations left behind", "fragmentation": "fragmentation", "cached-framework": "the framework's cache",
    "cached-pool": "pools of graphs or of the program", "cached-stream": "a cache for each stream", "other-processes": "other processes",
    "full": "this process",
}
PATIENCE = 1.0
"""Seconds after the end of the program within which the autopsy is there."""
LINES, COLUMNS = 12, 90
SETTING = re.compile(r"\b((?:GPUSHIM|PYTORCH)_[A-Z_]+)=(\S*[^\s.,;])")
"""An advice that is a variable: the program runs with it as it is."""


def run(session, built):
    each(session, "shortages", {name: lambda name=name: check(session, name) for name in KINDS})


def each(session, section, checks):
    """Does one after the other, each of which returns what was said, or `None` if it has said that itself."""
    for name, act in checks.items():
        status, detail = "PASS", ""
        try:
            detail = act()
        except (Wrong, KeyError, IndexError, TypeError, ValueError, OSError) as error:
            status, detail = "FAIL", f"{type(error).__name__}: {error}"
        if detail is not None:
            session.result(section, name, status, detail[:1500])


def check(session, name):
    """What was said, or an error; `None` if the program did not run, which is a line of its own."""
    environment = STACKS | AUTOPSY | ENVIRONMENT.get(name, {})
    outcome = attempt(session, name, [], environment)
    if missing(session, "shortages", name, [(name, outcome)]):
        return None
    if "ran out" not in outcome.stdout or not outcome.traces:
        raise Wrong(f"memory did not run out: {outcome.stdout[-100:]}")
    soon = autopsy(outcome, NAMED[name])
    text = situations.gpushim(session, ["oom", outcome.traces[0]])
    folder = session.out / "shortages"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.txt").write_text(text.stdout + text.stderr, encoding="utf-8")
    told = situations.gpushim(session, ["oom", "--format", "json", outcome.traces[0]])
    # PyTorch gives back what it has cached and asks again: a request that was then met ended nothing.
    shortages = [one for one in json.loads(told.stdout)["results"][0]["shortages"] if not one.get("met_later")]
    shortage = shortages[0]
    cause, place = KINDS[name]
    first = shortage["causes"][0]
    if (first["cause"], first.get("place")) != (cause, place):
        raise Wrong(f"{shortage['causes']}, expected {cause} {place or ''}: {shortage['verdict']}")
    advice = shortage["advice"][0] if shortage["advice"] else ""
    setting = dict([SETTING.search(advice).groups()]) if SETTING.search(advice) and name != "cached-framework" else {}
    again = attempt(session, name, [] if setting else ["--advised"], environment | setting)
    if missing(session, "shortages", name, [(f"{name} as advised", again)]):
        return None
    if "fitted" not in again.stdout:
        raise Wrong(f"what is advised does not help: {advice}")
    return f"{advice} Followed: it fits. {soon}"


def autopsy(outcome, cause, rank=""):
    """Checks the text beside the trace of a run, by the cause that it is to name; a word about how soon it was there."""
    head, *lines = outcome.autopsy.rstrip("\n").split("\n")
    if f": {cause}" not in head:
        raise Wrong(f"the autopsy does not name {cause}: {head or 'there is none'}")
    if not 5 <= len(lines) <= LINES or any(len(line) > COLUMNS for line in lines[:-1]):
        raise Wrong(f"the autopsy is not {LINES} lines of {COLUMNS} columns: {lines}")
    if not lines[0].startswith(f"gpushim: {rank}out of memory: ") or not lines[-1].startswith("  more   gpushim oom "):
        raise Wrong(f"the autopsy is not whole: {lines}")
    if outcome.autopsy_late > PATIENCE:
        raise Wrong(f"the autopsy came {outcome.autopsy_late:.2f} s after the end")
    return f"Autopsy {outcome.autopsy_late:+.2f} s after the end of the program."


def attempt(session, name, arguments, environment):
    """A run of the program under the shim."""
    argv = [sys.executable, GPU / "shortage.py", name, *arguments]
    return session.run(f"shortage {name} {' '.join(arguments)}", argv, shim=True, env=environment, timeout=60)

"""What one run's traces say of the stream-ordered family: who allocated on which streams, and what
reached the driver between two marks (tests/gpu/loop.py leaves them)."""

import json
import subprocess
from collections import Counter
from dataclasses import dataclass, field

from . import traces

MARK = 54321
"""The size of the allocations that are marks, as in tests/gpu/loop.py."""

KINDS = "alloc,free,reserve,release,trim,out-of-memory"
HOST = ("host", "registered")


@dataclass
class Survey:
    """The sum of a run's traces."""

    marks: int = 0
    events: int = 0
    allocations: Counter = field(default_factory=Counter)
    streams: Counter = field(default_factory=Counter)
    flags: Counter = field(default_factory=Counter)
    calls: Counter = field(default_factory=Counter)
    facts: list = field(default_factory=list)
    errors: list = field(default_factory=list)

    def driver_calls(self):
        """Calls for device memory between the marks that reached the driver."""
        return sum(count for name, count in self.calls.items() if not name.startswith("host "))

    def brief(self):
        """For the log and the results."""
        return {
            "marks": self.marks, "events": self.events, "allocations": dict(self.allocations),
            "streams": {hex(stream): count for stream, count in self.streams.most_common(8)},
            "flags": dict(self.flags), "calls": dict(self.calls), "errors": self.errors,
        }


def call_of(event):
    """The name of what an event shows to have reached the driver, or None."""
    kind, group, flags = event["kind"], event["class"], event["flags"]
    layer = "host" if group in HOST else "device"
    if kind in ("reserve", "release", "trim"):
        return f"{layer} {kind}"
    if "forwarded" in flags:
        return f"{layer} forwarded {kind} ({group})"
    return f"{layer} grown" if kind == "alloc" and "grown" in flags else None


def add(survey, events):
    """Counts the events of one process, in their order."""
    between = Counter()
    for event in events:
        survey.events += 1
        if event["kind"] == "alloc" and event["result"] == 0:
            survey.allocations[event["class"]] += 1
            if event["class"] == "pool-async":
                survey.streams[event.get("stream") or 0] += 1
                survey.flags.update(event["flags"])
            if event["size"] == MARK:
                survey.marks += 1
                if survey.marks > 1:
                    survey.calls += between
                between = Counter()
                continue
        call = call_of(event)
        if call:
            between[call] += 1


def read(session, outcome):
    """Reads every trace that a run left."""
    survey = Survey()
    for path in outcome.traces:
        try:
            done = subprocess.run(
                [session.command, "events", "--format", "json", "--kind", KINDS, path],
                capture_output=True, text=True, timeout=60,
            )
            add(survey, traces.events_in(done.stdout))
            if done.returncode not in (0, 1):
                survey.errors.append(done.stderr.strip()[-300:] or f"exit code {done.returncode}")
            report = subprocess.run(
                [session.command, "report", "--format", "json", path], capture_output=True, text=True, timeout=60
            )
            for one in json.loads(report.stdout)["results"]:
                survey.facts += [tuple(fact) for fact in one["facts"]]
            lost = traces.lost_in(report.stdout)
            if lost:
                survey.errors.append(f"{lost} records lost")
        except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
            survey.errors.append(f"{type(error).__name__}: {error}"[:300])
    session.log(f"survey: {survey.brief()}\nfacts: {survey.facts}")
    return survey

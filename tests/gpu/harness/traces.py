"""What the traces of a run say, read through the command `gpushim events --format json`."""

import json
import subprocess
from collections import Counter
from dataclasses import dataclass, field

ALLOCATIONS_OF = {
    "device": ["cuMemAlloc_v2"],
    "pitched": ["cuMemAllocPitch_v2"],
    "managed": ["cuMemAllocManaged"],
    "host": ["cuMemHostAlloc", "cuMemAllocHost_v2"],
    "vmm": ["cuMemCreate"],
    "pool_async": [
        "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz",
    ],
}
"""Class of an event -> the driver's calls that make one, as the counter names them."""


@dataclass
class Story:
    """The sum of one run's traces."""

    files: int = 0
    events: int = 0
    errors: list = field(default_factory=list)
    allocations: Counter = field(default_factory=Counter)
    bytes: Counter = field(default_factory=Counter)
    frees: Counter = field(default_factory=Counter)
    failures: Counter = field(default_factory=Counter)
    flags: Counter = field(default_factory=Counter)
    kinds: Counter = field(default_factory=Counter)
    peak_reserved: int = 0
    peak_tensors: int = 0
    tensor_allocations: int = 0
    tensor_frees: int = 0
    lost: int = 0

    def brief(self):
        """For the log and the results."""
        return {
            "files": self.files, "events": self.events, "allocations": dict(self.allocations),
            "frees": dict(self.frees), "failures": dict(self.failures), "flags": dict(self.flags),
            "peak_reserved": self.peak_reserved, "peak_tensors": self.peak_tensors,
            "tensor_allocations": self.tensor_allocations, "lost": self.lost, "errors": self.errors,
        }


def word(value):
    """`pool-async` -> `pool_async`, a name for Python."""
    return str(value).replace("-", "_")


def add(story, event, state):
    """Counts one event."""
    kind, group, size = word(event["kind"]), word(event["class"]), event["size"]
    story.events += 1
    story.kinds[kind] += 1
    if kind in ("alloc", "free") and event["result"] != 0:
        story.failures[f"{kind} {group}"] += 1
    elif kind == "alloc":
        story.allocations[group] += 1
        story.bytes[group] += size
    elif kind == "free":
        story.frees[group] += 1
    elif kind == "reserve":
        state["reserved"] += size
        story.peak_reserved = max(story.peak_reserved, state["reserved"])
    elif kind == "release":
        state["reserved"] -= size
    elif kind == "context_gone":
        state["reserved"] -= event["reserved"]
    elif kind in ("tensor_alloc", "tensor_free"):
        story.peak_tensors = max(story.peak_tensors, event["allocated"])
        if kind == "tensor_alloc":
            story.tensor_allocations += 1
        else:
            story.tensor_frees += 1
    if kind == "alloc":
        story.flags.update(event["flags"])


def events_in(text):
    """The events of what `gpushim events --format json` printed."""
    return [event for one in json.loads(text)["results"] for event in one["events"]] if text else []


def read(session, outcome):
    """Reads every trace that a run left."""
    story = Story(files=len(outcome.traces))
    for path in outcome.traces:
        try:
            done = subprocess.run(
                [session.command, "events", "--format", "json", path], capture_output=True, text=True, timeout=60
            )
            state = {"reserved": 0}
            for event in events_in(done.stdout):
                add(story, event, state)
            if done.returncode not in (0, 1):
                story.errors.append(done.stderr.strip()[-300:] or f"exit code {done.returncode}")
            report = subprocess.run(
                [session.command, "report", "--format", "json", path], capture_output=True, text=True, timeout=60
            )
            session.log(f"report {path.name}: code {report.returncode}\n{report.stdout[:2500]}{report.stderr[-500:]}")
            if report.returncode not in (0, 1):
                story.errors.append("report: " + report.stderr.strip()[-300:])
            story.lost += lost_in(report.stdout)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            story.errors.append(f"{type(error).__name__}: {error}"[:300])
    session.log(f"traces: {story.brief()}")
    return story


def lost_in(text):
    """Records that the ring no longer holds, or holds in part, by the report."""
    if not text:
        return 0
    events = [report["summary"]["events"] for report in json.loads(text)["results"]]
    return sum(one["lost"] + one["torn"] for one in events)


def compare_counts(story, counts):
    """Differences between what the trace holds and what the program asked of the driver natively.

    Returns (text of differences, text of what agreed)."""
    differences, agreed = [], []
    for group, calls in ALLOCATIONS_OF.items():
        asked = sum(counts.get(call, (0, 0))[0] for call in calls)
        seen = story.allocations[group]
        if asked != seen:
            differences.append(f"{group} allocs: asked {asked}, traced {seen}")
        elif asked:
            agreed.append(f"{asked} {group} allocs")
    asked = counts.get("cuMemFree_v2", (0, 0))[0]
    seen = sum(story.frees[group] for group in ("device", "pitched", "managed"))
    if asked != seen:
        differences.append(f"frees: asked {asked}, traced {seen}")
    elif asked:
        agreed.append(f"{asked} frees")
    if story.lost:
        differences.append(f"{story.lost} records lost")
    differences += story.errors
    return "; ".join(differences), ", ".join(agreed)
